"""MiniMax M2, as Hugging Face's modeling_minimax_m2.py has it: queries and keys are normed over all heads; sigmoids weigh, and with a bias
choose."""
from model import Model, sigmoid
from post_normed import Olmo2
from qwen3moe import mixture


class MiniMaxM2(Model):
    norm_heads = Olmo2.norm_heads

    def feed_forward(self, x, name):
        scores = sigmoid(self.linear(x, f"{name}.ffn_gate_inp"))
        return mixture(self, x, name, scores, self.weights[f"{name}.exp_probs_b.bias"])
