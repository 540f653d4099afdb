from model import Model


class Llama(Model):
    interleaved = True
