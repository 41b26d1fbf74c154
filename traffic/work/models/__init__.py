"""Models that are trained: their shapes, and what follows from these: tensors, parameters and FLOPs.

::

    MODEL.yaml       shapes of a published model, and where they are from
    shapes           what models are made of: tensors in parts of layers
    transformer      keys of a transformer, with latent attention and experts where it has them
    convolutional    keys of a network of convolutions and linear layers
    listing          a model by its name or the path of a file
"""
