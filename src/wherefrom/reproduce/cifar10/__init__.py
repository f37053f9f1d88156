"""The paper's classification study on CIFAR-10, and what happens to its networks on images of another kind.

data.py finds the images, vgg.py is the network, presets.py says what is trained and at which scale, study.py trains and
predicts, scores.py scores every combination and ensemble size, shift.py makes corrupted images and finds other sets,
picture.py and tables.py show it, and command.py is `wherefrom reproduce cifar10`.
"""
