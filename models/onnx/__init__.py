"""Models as ONNX: made, checked, run, and answers put into words."""
