"""The long proofs: random kills and power cuts, judged by a witness that knows nothing of the product's code."""
