"""From a budget to noise: calibration, warnings, and whether a job would fit."""
