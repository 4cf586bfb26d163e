"""Any asv results tree as a store of points: ours, or another project's.

``Store`` keeps a columnar cache in step with the files; ``Results`` is a snapshot of it, with the
queries; ``model`` has the nouns. Nothing here decides what a number means.

    results = Store.open(Path("results")).current()
    for trend in results.trends(results.series(machine="h200-locked@1500", family="linear")):
        ...
"""
