"""The hybrid with experts: beside those that a row chooses, one that all go through, behind the sigmoid of a gate."""
from model import sigmoid
from qwen3moe import Qwen3Moe
from qwen35 import Qwen35


class Qwen35Moe(Qwen35):
    def feed_forward(self, x, name):
        shared = super().feed_forward(x, name, "_shexp")
        gate = x @ self.weights[f"{name}.ffn_gate_inp_shexp.weight"].reshape(-1)
        return Qwen3Moe.feed_forward(self, x, name) + sigmoid(gate)[:, None] * shared
