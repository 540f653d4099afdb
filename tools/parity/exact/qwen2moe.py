"""Qwen2's mixtures of experts, as Hugging Face's modeling_qwen2_moe.py has it: the softmax over all weighs as it is, and beside the chosen
experts one sees every token, behind the sigmoid of a gate."""
from model import Model, sigmoid, softmax
from qwen3moe import mixture


class Qwen2Moe(Model):
    def feed_forward(self, x, name):
        chosen = mixture(self, x, name, softmax(self.linear(x, f"{name}.ffn_gate_inp")), divided=False)
        gate = x @ self.weights[f"{name}.ffn_gate_inp_shexp.weight"].reshape(-1)
        return chosen + sigmoid(gate)[:, None] * super().feed_forward(x, name, "_shexp")
