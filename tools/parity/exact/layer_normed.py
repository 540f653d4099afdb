"""Decoders whose norms are about the mean: Cohere's Command and Aya (transformers, models/cohere, cohere2 and cohere2_moe), StarCoder2
(arXiv 2402.19173), Nemotron (transformers, models/nemotron)."""
from encoders import Encoder
from gemma import gelu
from model import Model, sigmoid, squared_relu
from qwen3moe import mixture


class LayerNormed(Model):
    norm = Encoder.norm


class CommandR(LayerNormed):
    """Attention and SwiGLU side by side on one norm; heads have a norm each in Command R+."""
    interleaved = True

    def layer(self, x, layer, cache):
        name = f"blk.{layer}"
        normed = self.norm(x, f"{name}.attn_norm")
        return x + self.mix(normed, layer, cache) + self.feed_forward(normed, name)

    def logits(self, rows):
        return super().logits(rows) * float(self.key("logit_scale"))


class Cohere2(CommandR):
    """Every fourth layer sees everything and has no positions."""

    def window(self, layer):
        return self.key("attention.sliding_window") if layer % 4 != 3 else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) else None


class Cohere2Moe(CommandR):
    """Experts behind the first layers, which have positions whatever they see; RMSNorm where the file has its epsilon."""

    def norm(self, x, name):
        rms = self.key("attention.layer_norm_rms_epsilon") is not None
        return Model.norm(self, x, name) if rms else super().norm(x, name)

    def window(self, layer):
        return self.key("attention.sliding_window") if self.key("attention.sliding_window_pattern")[layer] else 0

    def frequencies_of(self, layer):
        return self.frequencies if self.window(layer) or layer < self.key("leading_dense_block_count") else None

    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores = sigmoid(self.linear(x, f"{name}.ffn_gate_inp"))
        chosen = mixture(self, x, name, scores, divided=self.key("expert_weights_norm"))
        if self.key("expert_shared_count", 0) == 0:
            return chosen
        return (chosen + super().feed_forward(x, name, "_shexp")) / 2


class StarCoder2(LayerNormed):
    """GELU without a gate."""

    def feed_forward(self, x, name):
        return self.linear(gelu(self.linear(x, f"{name}.ffn_up")), f"{name}.ffn_down")


class Nemotron(LayerNormed):
    """Squared ReLU without a gate; the file's norms have their 1 already."""

    def feed_forward(self, x, name):
        return self.linear(squared_relu(self.linear(x, f"{name}.ffn_up")), f"{name}.ffn_down")
