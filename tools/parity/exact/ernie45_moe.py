"""ERNIE 4.5 with experts, as Hugging Face's modeling_ernie4_5_moe.py has it: a bias chooses by the softmax over all and does not weigh."""
from llama import Llama
from model import softmax
from qwen3moe import mixture


class Ernie45Moe(Llama):
    def feed_forward(self, x, name):
        if f"{name}.ffn_gate_inp.weight" not in self.weights:
            return super().feed_forward(x, name)
        scores, bias = softmax(self.linear(x, f"{name}.ffn_gate_inp")), self.weights[f"{name}.exp_probs_b.bias"]
        return mixture(self, x, name, scores, bias) + super().feed_forward(x, name, "_shexp")
