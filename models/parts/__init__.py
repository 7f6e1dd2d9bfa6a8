"""The parts that models are made of."""
