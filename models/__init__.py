"""What was released: frozen ensembles, explanations, ONNX, bundles. Everything here is post-processing; it never sees
a training row.
"""
