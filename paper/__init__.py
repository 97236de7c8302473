"""The paper's tables and figures, and ours beside them: from a run to a page.

1. `python -m paper.run --data DIR` trains the networks that paper/runs.py lists, into runs/paper.
2. paper/collect.py turns complete runs into rows of results/TABLE.json, by itself when the queue is empty, or with
   `python -m paper.collect --data DIR`. Networks that are scored photo by photo (denoising) are scored here. Scripts
   for what needs no training (networks, training_cost, toy, inputs, packaged, noises, enlargement, counting, figures)
   write rows in the same form: identifiers for table, dataset, model and metric, and a value.
3. `python -m paper.render` writes every page: RESULTS.md, and the marked tables and figures in README.md, docs/, the
   model cards and the recipes' docstrings. tests/paper/test_render.py fails where a page and the files disagree.

words.toml has the words for the identifiers, published.toml what the paper prints and the notes of RESULTS.md.
"""
