"""For TensorFlow: loaders as tf.data datasets."""

from fastloader.tensorflow.dataset import to_tf_dataset

__all__ = ["to_tf_dataset"]
