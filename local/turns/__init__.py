"""The paper's boosted learners in a strict form: owners answer in turns, labels and weights inside the report."""
