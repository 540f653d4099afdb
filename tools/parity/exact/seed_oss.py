"""Seed-OSS: a plain decoder, whose files have another name for a norm."""
from model import Model


class SeedOss(Model):
    feed_forward_norm = "post_attention_norm"
