"""LongRoPE (arXiv 2402.13753): a factor for each pair, those of the context that the model runs in."""


def longrope(model):
    """Gives the model LongRoPE's frequencies and magnitude, where its file has the factors."""
    original = model.key("rope.scaling.original_context_length", model.key("context_length"))
    reach = "long" if model.context > original else "short"
    factors = model.weights.get(f"rope_factors_{reach}.weight")
    if factors is not None:
        model.frequencies = model.frequencies / factors
    model.magnitude = float(model.key("rope.scaling.attn_factor", 1.0))
