"""OLMo 2 and 3 (arXiv 2501.00656, 2512.13961) and EXAONE 4 (arXiv 2507.11407): norms behind each half of a layer, none before it."""
from model import Model
from yarn import yarn


class PostNormed(Model):
    def window(self, layer):
        return self.key("attention.sliding_window", 0) if layer % 4 != 3 else 0

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        x = x + self.norm(self.mix(x, layer, cache), f"{name}.post_attention_norm")
        return x + self.norm(self.feed_forward(x, name), f"{name}.post_ffw_norm")


class Olmo2(PostNormed):
    """Queries and keys are normed over all heads; YaRN is for layers that see everything."""

    def __init__(self, reader, context):
        super().__init__(reader, context)
        self.near = self.frequencies
        if self.key("rope.scaling.type") == "yarn":
            yarn(self)

    def norm_heads(self, x, name):
        return self.norm(x.reshape(len(x), -1), name).reshape(x.shape)

    def frequencies_of(self, layer):
        return self.near if self.window(layer) else self.frequencies

    def magnitude_of(self, layer):
        return 1.0 if self.window(layer) else self.magnitude


class Exaone4(PostNormed):
    """With windows, layers that see everything have no positions."""

    def frequencies_of(self, layer):
        hybrid = self.key("attention.sliding_window", 0) > 0
        return None if hybrid and not self.window(layer) else self.frequencies
