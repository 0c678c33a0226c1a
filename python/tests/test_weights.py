"""Weights of other programs as models, by the command `minrnn import`."""
import os
import struct
import tempfile
import unittest

import numpy as np

import minrnn
from minrnn.command import command
from minrnn.weights import _read, _run


def layer(features=4, hidden=6, seed=1):
    """A minGRU of minGRU-pytorch with a projection: rows of the candidate, then of the gate."""
    rng = np.random.default_rng(seed)
    return {"to_hidden_and_gate.weight": rng.standard_normal((2 * hidden, features)).astype(np.float32),
            "to_out.weight": rng.standard_normal((features, hidden)).astype(np.float32)}


@unittest.skipUnless(command(), "the command is not built: weights of other programs were not read")
class Weights(unittest.TestCase):
    def setUp(self):
        self.x = np.random.default_rng(2).standard_normal((2, 9, 4)).astype(np.float32)

    def check(self, model, tensors):
        """The model computes what the layer does."""
        hidden, gate = np.split(tensors["to_hidden_and_gate.weight"], 2)
        h, _ = minrnn.mingru(self.x, np.concatenate([gate, hidden]))
        np.testing.assert_allclose(model.forward(values=self.x), h @ tensors["to_out.weight"].T, atol=2e-6)

    def test_a_state_dict_becomes_a_model(self):
        tensors = layer()
        for make in minrnn.from_lucidrains, minrnn.from_state_dict:
            self.check(make(tensors), tensors)
        for dtype in np.float16, np.float64, ">f4":
            rounded = {name: x.astype(dtype) for name, x in tensors.items()}
            self.check(minrnn.from_state_dict(rounded), {name: x.astype(np.float32) for name, x in rounded.items()})
        turned = {name: np.asfortranarray(x) for name, x in tensors.items()}
        self.check(minrnn.from_state_dict(turned), tensors)

    def test_a_file_becomes_a_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "layer.safetensors")
            with open(path, "wb") as file:
                x = np.zeros((12, 4), np.float32)
                text = b'{"to_hidden_and_gate.weight":{"dtype":"F32","shape":[12,4],"data_offsets":[0,192]}}'
                file.write(struct.pack("<Q", len(text)) + text + x.tobytes())
            self.assertEqual(minrnn.from_state_dict(path).config["mixer"], "mingru")
            with self.assertRaisesRegex(minrnn.FormatError, "minrnn.from_state_dict makes one"):
                minrnn.load(path)

    def test_a_vocabulary_of_characters(self):
        model = minrnn.Model(vocab=sorted("abcd"), layers=1, dim=8)
        with tempfile.TemporaryDirectory() as folder:
            source, out = os.path.join(folder, "model"), os.path.join(folder, "weights")
            model.save(source)
            _run("export", folder, source, "--to", "torch", "--out", out)
            tensors = dict(_read(out))  # without the metadata, which has the vocabulary
        again = minrnn.from_state_dict(tensors, vocab=sorted("abcd"))
        self.assertEqual((again.vocab, again.decode(again.encode("bad"))), ("chars", "bad"))
        np.testing.assert_array_equal(again([[0, 1, 2]]), model([[0, 1, 2]]))

    def test_errors_are_sentences_of_the_command(self):
        tensors = layer()
        more = {**tensors, "other": np.zeros(3, np.float32)}
        for pattern, call in (
                ("^not of a program that minrnn knows", lambda: minrnn.from_state_dict({"a": np.zeros(3, np.float32)})),
                ("^tensor other", lambda: minrnn.from_state_dict(more)),
                ("layot", lambda: minrnn.from_state_dict(tensors, layout="layot")),
                ("name one with layout$", lambda: minrnn.from_state_dict({"a": np.zeros(3, np.float32)})),
                ("^tensors: must be a dict of arrays, a module or a path, not NoneType",
                 lambda: minrnn.from_state_dict(None)),
                ("^vocab: must be .bytes., or characters in ascending order",
                 lambda: minrnn.from_state_dict(tensors, vocab=["b", "a"])),
                ("^hedz is neither", lambda: minrnn.from_state_dict(tensors, hedz=2)),
                ("has no tokens as input", lambda: minrnn.from_state_dict(tensors, vocab="bytes")),
                ("^to_out.weight: is of <U1", lambda: minrnn.from_state_dict({"to_out.weight": np.array("x")}))):
            with self.subTest(pattern), self.assertRaisesRegex(minrnn.InvalidArgument, pattern):
                call()
        tensors["to_out.weight"][1, 2] = np.nan
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^tensor to_out.weight: element 8 is NaN"):
            minrnn.from_state_dict(tensors)


if __name__ == "__main__":
    unittest.main()
