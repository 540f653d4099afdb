"""Ministral 3: Llama with YaRN, and a temperature of queries by position."""
import numpy as np

from llama import Llama
from yarn import yarn


class Mistral3(Llama):
    def __init__(self, reader, context):
        super().__init__(reader, context)
        yarn(self)

    def temperature(self, positions, layer):
        original = self.key("rope.scaling.original_context_length")
        beta = float(self.key("attention.temperature_scale", 0.0))
        return 1 + beta * np.log(1 + positions // original)
