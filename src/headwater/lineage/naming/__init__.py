"""Names: of datasets by where the data lies, cut, resolved and made the same wherever they are seen."""
