"""YaRN (arXiv 2309.00071): fast pairs keep their frequencies, slow ones are divided, those between are mixed."""
import numpy as np


def yarn(model):
    """Gives the model YaRN's frequencies and magnitude, as its keys say."""
    factor = float(model.key("rope.scaling.factor"))
    original = model.key("rope.scaling.original_context_length", model.key("context_length"))
    n, base = model.rotated, float(model.key("rope.freq_base", 1e4))

    def pair(turns):
        return n * np.log(original / (turns * 2 * np.pi)) / (2 * np.log(base))

    low = max(0, np.floor(pair(float(model.key("rope.scaling.yarn_beta_fast", 32.0)))))
    high = min(n - 1, np.ceil(pair(float(model.key("rope.scaling.yarn_beta_slow", 1.0)))))
    kept = 1 - np.clip((np.arange(n // 2) - low) / max(0.001, high - low), 0, 1)
    model.frequencies = model.frequencies * (kept + (1 - kept) / factor)
    taken_back = float(model.key("rope.scaling.yarn_log_multiplier", 0.0))
    model.magnitude = (1 + 0.1 * np.log(factor)) / (1 + 0.1 * taken_back * np.log(factor))
