"""Read any asv results tree, ours or another project's, as a store of points.

``Store`` keeps a columnar cache in step with the files. ``Results`` is a snapshot of the store and answers queries.
``model`` defines the data classes. This package does not judge whether a number is good or bad.

    results = Store.open(Path("results")).current()
    for trend in results.trends(results.series(machine="h200-locked@1500", family="linear")):
        ...
"""
