"""Sound bounds of networks over boxes, in batches."""
