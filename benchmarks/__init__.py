"""Programs that measure: times in ratios of one run, and figures that the documents give."""
