"""Arcee's AFM: Llama with YaRN, whose feed-forward half is a squared ReLU without a gate."""
from llama import Llama
from model import squared_relu
from yarn import yarn


class Arcee(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        yarn(self)

    def feed_forward(self, x, name):
        return self.linear(squared_relu(self.linear(x, f"{name}.ffn_up")), f"{name}.ffn_down")
