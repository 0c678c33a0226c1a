"""Imported models: where they compute, and what is refused before the command could take it for something else."""
import os
import pathlib
import tempfile
import unittest

import numpy as np
from test_weights import layer

import minrnn
from minrnn.command import command
from minrnn.weights import _read, _run, _write


@unittest.skipUnless(command(), "the command is not built: weights of other programs were not read")
class WeightCorners(unittest.TestCase):
    def test_where_a_model_computes(self):
        tensors, x = layer(), np.random.default_rng(2).standard_normal((2, 9, 4)).astype(np.float32)
        exact, low = minrnn.from_state_dict(tensors), minrnn.from_state_dict(tensors, bf16=True, threads=1)
        self.assertFalse(np.array_equal(low.forward(values=x), exact.forward(values=x)))
        np.testing.assert_allclose(low.forward(values=x), exact.forward(values=x), atol=0.1)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^threads = -1"):
            minrnn.from_state_dict(tensors, threads=-1)

    def refused(self, pattern, call, kind=minrnn.InvalidArgument):
        with self.subTest(pattern), self.assertRaisesRegex(kind, pattern):
            call()

    def test_arguments_that_are_no_texts(self):
        tensors = layer()
        for name in "layout", "vocab", "text":
            for wrong in 5, b"ab", 0.5:
                self.refused(f"^{name}: must be a text, not", lambda: minrnn.from_state_dict(tensors, **{name: wrong}))
        self.refused("^layout: must be a text", lambda: minrnn.from_state_dict(tensors, layout=None))
        for name in "layout", "vocab", "norm-eps":
            self.refused(f"^{name}: has a zero byte", lambda: minrnn.from_state_dict(tensors, **{name: "a\0b"}))
        self.refused("^text: character 1 is half of one", lambda: minrnn.from_state_dict(tensors, text="a\ud800"))

    def test_a_vocabulary_is_told_once(self):
        tensors = minrnn.Model(vocab=["a", "b"], layers=1, dim=8).state_dict()
        for vocab in "bytes", ["a", "b"]:
            self.refused("^vocab, text: one of them", lambda: minrnn.from_state_dict(tensors, vocab=vocab, text="ab"))
        for vocab in [], ["b", "a"], [1, 2], ["ab"]:
            self.refused("^vocab: must be .bytes., or char", lambda: minrnn.from_state_dict(tensors, vocab=vocab))
        for how in ({"text": "bbaab"}, {"text": "ab", "vocab": "chars"}, {"vocab": ("a", "b")},
                    {"vocab": np.array(["a", "b"])}):
            self.assertEqual(minrnn.from_state_dict(tensors, **how).decode([1, 0]), "ba")
        both = minrnn.from_state_dict(tensors, text="\r\0")  # every character counts
        self.assertEqual(both.decode([0, 1]), "\0\r")

    def test_flags_of_the_command_are_no_keys(self):
        for name, value in (("help", True), ("quiet", True), ("json", True), ("out", "x"), ("from", "torch"),
                            ("dtype", "bf16"), ("tf32", False), ("seed", 3)):
            self.refused(f"^{name}: is no key of a model", lambda: minrnn.from_state_dict(layer(), **{name: value}))

    def test_tensors_that_know_their_scaler(self):
        model = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", layers=1, dim=8)
        model.set_scaler(input_mean=[1.25, 2], input_scale=[3, 4.5])
        with tempfile.TemporaryDirectory() as folder:
            source, out = os.path.join(folder, "model"), os.path.join(folder, "weights")
            model.save(source)
            _run("export", folder, source, "--to", "torch", "--out", out)
            tensors = _read(out)
        again = minrnn.from_state_dict(tensors)
        self.assertEqual({name: x.tolist() for name, x in again.scaler.items()},
                         {"input_mean": [1.25, 2], "input_scale": [3, 4.5]})
        x = np.ones((1, 3, 2))
        np.testing.assert_allclose(again.forward(values=x), model.forward(values=x), atol=1e-6)

    def test_masked_weights(self):
        masked = {name: np.ma.array(x, mask=x > 0) for name, x in layer().items()}
        self.refused("a masked array; its mask would be lost", lambda: minrnn.from_state_dict(masked))

    def test_files_by_any_name(self):
        self.addCleanup(os.chdir, os.getcwd())
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            for name in "--help", "-x", "a b":  # the first two look like flags
                _write(name, layer())
                for path in name, os.fsencode(name), pathlib.Path(name):
                    self.assertEqual(minrnn.from_state_dict(path).config["mixer"], "mingru")
            with open(b"\xff", "wb") as file:
                file.write(b"no weights")
            self.refused("^\ufffd", lambda: minrnn.from_state_dict(b"\xff"))
            os.chdir(os.pardir)
        for none in "--help", "nowhere/there", b"none", pathlib.Path("none"), "":
            self.refused(": cannot be opened: No such file", lambda: minrnn.from_state_dict(none), minrnn.FileError)


if __name__ == "__main__":
    unittest.main()
