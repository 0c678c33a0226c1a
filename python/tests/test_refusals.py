"""What cannot be used is refused by minrnn's own exceptions, with a sentence in words of Python."""
import os
import subprocess
import sys
import tempfile
import textwrap
import unittest
from unittest import mock

import numpy as np

import minrnn
from minrnn.arrays import settings_as_text


def text_model(**more):
    return minrnn.Model(**{"vocab": "bytes", "layers": 1, "dim": 8, **more})


class Refusals(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.safetensors")
        self.addCleanup(self.folder.cleanup)

    def refused(self, pattern, call, kind=minrnn.InvalidArgument):
        with self.subTest(pattern), self.assertRaisesRegex(kind, pattern):
            call()

    def test_arrays_that_the_loss_does_not_read(self):
        ids, x = np.zeros((2, 3), np.int32), np.zeros((2, 3, 1), np.float32)
        text = text_model()
        classes = minrnn.Model(input="reals", inputs=1, outputs=3, head="last", layers=1, dim=8)
        reals = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", layers=1, dim=8)
        for model, batch, unused in ((text, dict(ids=ids, target=ids), ("mask", "target_values")),
                                     (classes, dict(values=x, target=[0, 1]), ("mask", "target_values")),
                                     (reals, dict(values=x, target_values=x), ("target",))):
            model.fit([{**batch, **{name: None for name in unused}}])
            for name in unused:
                self.refused(f"^batch: {name}: this model's loss, ", lambda: model.fit([{**batch, name: x[:, :, 0]}]))
        mask = np.array([[1, 0, 0]] * 2)
        want = reals.evaluate(values=x, target_values=x, mask=mask)
        self.assertEqual(want.rows, 2)

    def test_numbers_as_numpy_has_them(self):
        text = settings_as_text(dict(lr=np.float64(0.5), norm_eps=np.float32(0.25), mlp=np.int64(2), x=np.True_,
                                     y=np.str_("z"), betas=(0.9, np.float64(0.99)), vocab=["a", "b"], z=np.array(3)))
        self.assertEqual(text, {"lr": "0.5", "norm-eps": "0.25", "mlp": "2", "x": "yes", "y": "z", "betas": "0.9,0.99",
                                "vocab": '["a", "b"]', "z": "3"})
        model = text_model(lr=np.float64(0.01), betas=(0.9, 0.99), mlp_bias=np.True_)
        self.assertEqual((model.config["betas"], model.config["lr"], model.config["mlp-bias"]),
                         ("0.9,0.99", "0.01", "yes"))

    def test_devices(self):
        for name, wrong in (("device", []), ("device", None), ("threads", [1]), ("threads", -1), ("threads", True)):
            self.refused(f"^{name}", lambda: text_model(**{name: wrong}))
        self.assertIs(minrnn.context("cpu", np.int64(1), np.True_), minrnn.context("cpu", 1, True))

    def test_limits_are_named(self):
        model = text_model()
        self.refused("^top_k = 2147483648: .*from 0 to 2147483647", lambda: model.generate(top_k=2**31))
        self.refused("^seed = 18446744073709551616: .*to 18446744073709551615", lambda: model.generate(seed=2**64))
        self.refused("^tokens = -1: must be a whole number, 0 or more", lambda: model.generate(tokens=-1))
        self.refused("vocab=.* or inputs= and outputs=", minrnn.Model)

    def test_sentences_have_names_of_python(self):
        mean = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", head="mean", layers=1, dim=8)
        for call in mean.stream, lambda: text_model(scaler="both"), lambda: text_model(weights="int8"), \
                lambda: text_model().set(nothing=1), lambda: minrnn.load(self.path):
            text_model().save_training(self.path)
            with self.assertRaises(minrnn.Error) as caught:
                call()
            self.assertNotRegex(str(caught.exception), "mr_|--(?!help|out FOLDER|resume)")

    def test_texts_are_no_numbers_and_no_flags(self):
        """"no" would count as true, and "0.5" is a number for float()."""
        model, x = text_model(), np.zeros((1, 2, 3), np.float32)
        for wrong in "no", "", 2, 0.0, [True], np.array([1, 2]):
            for name, call in (("bf16", lambda: text_model(bf16=wrong)), ("bf16", lambda: minrnn.load("x", bf16=wrong)),
                               ("exact", lambda: minrnn.context(exact=wrong)),
                               ("train", lambda: model.forward([[1]], train=wrong)),
                               ("carry", lambda: model.fit([], carry=wrong)),
                               ("int8", lambda: model.save(self.path, int8=wrong)),
                               ("best", lambda: model.save(self.path, best=wrong)),
                               ("signed", lambda: minrnn.mingru(x, np.zeros((4, 3)), signed=wrong)),
                               ("normalize", lambda: minrnn.minlstm(x, np.zeros((6, 3)), normalize=wrong))):
                self.refused(f"^{name} = .*must be True or False", call)
        for wrong in "0.5", b"1", True, 10**400, None:
            self.refused("^temperature = .*: must be a number$", lambda: model.generate(temperature=wrong))
            self.refused("^top_p = .*: must be a number$", lambda: model.generate(top_p=wrong))
        for wrong in np.inf, -1, np.nan:
            self.refused("^temperature: must be a number from 0 to 1e6",
                         lambda: list(model.generate(temperature=wrong)))

    def test_names_that_are_no_texts(self):
        model, x = text_model(), np.zeros((1, 2, 3))
        for wrong in [], {}, 5, None:
            self.refused("^which = ", lambda: model.state_dict(wrong))
            self.refused("^candidate: is ", lambda: minrnn.mingru(x, np.zeros((4, 3)), candidate=wrong))
        self.refused("^batch: 1, None, x: no such array", lambda: model.fit([{1: x, "x": x, None: x}]))
        self.refused("^tensors: missing .*, unknown \\[5, 'x'\\]", lambda: model.load_state_dict({5: x, "x": x}))

    def test_tokens_that_are_too_large(self):
        stream = text_model().stream()
        for wrong in 2**31, 2**32, 2**70, -2**31 - 1, -2**32, -2**70:
            self.refused("^token: .* is too large", lambda: stream.step(wrong))

    def test_halves_of_characters_in_settings(self):
        for name, value in ("vocab", ["\ud800"]), ("mixer", "\udfff"), ("\ud800", 1):
            self.refused("^settings: has half a character",
                         lambda: minrnn.Model(**{"inputs": 2, "outputs": 2, "input": "reals", name: value}))

    def test_numbers_that_are_too_large(self):
        model = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", layers=1, dim=8)
        self.refused("^ids: a number is too large", lambda: text_model().forward([[2**70]]))
        self.refused("^values: a number is too large", lambda: model.forward(values=[[[10**400]]]))

    @unittest.skipUnless(hasattr(np, "dtypes") and hasattr(np.dtypes, "StringDType"), "of NumPy 2")
    def test_texts_of_any_length_are_no_values(self):
        model = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", layers=1, dim=8)
        for dtype in "U3", "S3", np.dtypes.StringDType():
            self.refused("^values: must be numbers", lambda: model.forward(values=np.array([[["1.5"]]], dtype)))

    def test_settings_that_are_not_spelled_right(self):
        model = text_model()
        self.refused("^lrr: not a training setting; did you mean lr\\?$", lambda: model.set(lrr=0.1))
        self.refused("^shedule: .*; did you mean schedule\\?$", lambda: model.set(shedule="cosine"))
        for name in "dim", "decay_set", "nothing_like_it_at_all":
            self.refused("not a training setting; minrnn train --help lists them$", lambda: model.set(**{name: 1}))

    def test_a_stream_takes_one_sequence(self):
        reals = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", layers=1, dim=8).stream()
        self.refused("^values: has the shape \\(2, 3, 2\\)", lambda: reals.feed(np.zeros((2, 3, 2))))
        reals.feed(np.zeros((3, 2)))
        stream = text_model().stream()
        for wrong in [1, 2], [], [[1], [2]], b"ab":
            wrong = bytearray(wrong) if isinstance(wrong, bytes) else wrong
            self.refused("^token: has the shape", lambda: stream.step(wrong))
        np.testing.assert_array_equal(stream.clone().step(np.array([5])), stream.step(5))

    def test_copies_where_none_are_wanted(self):
        model = text_model()
        model.mark_best()
        self.refused("^the best weights cannot be viewed", lambda: model.tensor("head.weight", "best", copy=False))
        model.save(self.path, int8=True)
        small = minrnn.load(self.path)
        name = next(name for name, dtype, _ in small._net.tensors() if dtype == "I8")
        self.refused(f"^{name}: has 8 bits and cannot be viewed", lambda: small.tensor(name, copy=False))
        self.assertEqual(small.tensor(name).shape, model.tensor(name).shape)
        far = mock.Mock(wraps=model._net)  # as on a GPU
        far.view.side_effect = minrnn.DeviceError("this device's memory cannot be seen in place")
        with mock.patch.object(model, "_net", far):
            self.refused("cannot be seen in place", lambda: model.tensor("head.weight", copy=False), minrnn.DeviceError)
            copied = model.tensor("head.weight")
        np.testing.assert_array_equal(copied, model.tensor("head.weight"))
        self.assertFalse(np.shares_memory(copied, model.tensor("head.weight")))

    def test_weights_of_8_bits_are_left_alone(self):
        model = text_model()
        model.save(self.path, int8=True)
        small = minrnn.load(self.path)
        before = {name: x.copy() for name, x in small.state_dict().items()}
        self.refused("has 8 bits and cannot be set", lambda: small.load_state_dict(
            {name: x + 1 for name, x in model.state_dict().items()}))
        for name, x in small.state_dict().items():
            np.testing.assert_array_equal(x, before[name])

    def test_paths_and_texts(self):
        model = text_model()
        for path in "a\0b", b"a\0b", "\ud800", 5, None:
            for call in (minrnn.load, model.save, model.save_training, model.load_training, minrnn.read_log,
                         *([minrnn.from_state_dict] if isinstance(path, (str, bytes)) else [])):
                self.refused("^path", lambda: call(path))
        for call in (lambda: model.encode("a\ud800"), lambda: model.generate("\ud800"),
                     lambda: model.score("ab\udfff")):
            self.refused("^text: character [0-9] is half of one", call)
        for wrong in "a\0", "\ud800":
            self.refused("^value: has ", lambda: model.set_metadata("mine.x", wrong))
        name = os.path.join(os.fsencode(self.folder.name), b"\xff\xfe.safetensors")
        for path in name, os.fsdecode(name):
            model.save(path)
            self.assertEqual(minrnn.load(path).parameters, model.parameters)
            os.remove(name)
            for call in minrnn.load, minrnn.read_log, minrnn.from_state_dict:
                self.refused("\ufffd", lambda: call(path), minrnn.FileError)

    def test_damaged_states(self):
        stream = text_model().stream()
        state = bytearray(stream.save())
        for at in range(56):
            damaged = bytearray(state)
            damaged[at] ^= 0xff
            with self.assertRaises((minrnn.FormatError, minrnn.InvalidArgument)):
                stream.load(damaged)
        stream.load(state)
        stream.load(memoryview(state))
        self.refused("^state: must be bytes, not int", lambda: stream.load(5))

    def test_refused_arrays_are_given_back(self):
        model = text_model()
        stream, wrong = model.stream(), np.zeros(5, np.float32)
        ids = np.zeros((1, 2), np.int32)
        for call in (lambda: stream._core.feed(wrong, 7, False, wrong), lambda: stream._core.step(1, wrong),
                     lambda: model._net.run(0, (1, 2, ids, None, None, None, None, None, None), wrong)):
            before = sys.getrefcount(wrong)
            self.refused("has 5 elements of 4 bytes", call)
            self.assertEqual(sys.getrefcount(wrong), before)

    def test_damaged_logs(self):
        path = os.path.join(self.folder.name, "log.jsonl")

        def log(text):
            with open(path, "wb") as file:
                file.write(b'{"kind":"step","step":1,"loss":2}\n' + text)
            return minrnn.read_log(self.folder.name)

        for pattern, text in (("is no object", b"[1]\n"), ("has no step", b'{"kind":"step","loss":2}\n'),
                              ("has no step", b'{"kind":"eval","step":1.5}\n'),
                              ("has no step", b'{"kind":"step","step":-1}\n'),
                              ("has no step", b'{"kind":"step","step":9223372036854775808}\n'),
                              ("is not UTF-8", b'{"a":"\xff"}\n'),
                              ("is not JSON", b"{\n")):
            self.refused(f"log.jsonl, line 2: {pattern}$", lambda: log(text), minrnn.FormatError)
        both = log(b'{"kind":"step","step":2,"loss":"x","note":"text"}\n{"kind":"start","seed":1}\n'
                   b'{"kind":"step","st')
        steps = both.steps
        self.assertEqual((set(steps), both.evals), ({"step", "loss", "note"}, {}))
        np.testing.assert_array_equal(steps["loss"], [2, np.nan])
        np.testing.assert_array_equal(steps["note"], [np.nan, np.nan])
        self.refused("none: No such file", lambda: minrnn.read_log(path + "none"), minrnn.FileError)
        self.refused("line 2: is nested too deeply$", lambda: log(b"[" * 100_000 + b"\n"), minrnn.FormatError)
        self.assertEqual(len(log(b'{"a":' * 100_000).steps["step"]), 1)  # half written

    def test_logs_show_what_they_have(self):
        for name, data in (("log.jsonl", b'{"kind":"step","step":1}\n'), ("curve.svg", b"\xff")):
            with open(os.path.join(self.folder.name, name), "wb") as file:
                file.write(data)
        log = minrnn.read_log(self.folder.name)
        self.assertTrue(repr(log).endswith(": 1 steps, 0 evaluations)"), repr(log))
        self.assertIsNone(log._repr_svg_())

    def test_measuring_needs_torch(self):
        with open(os.path.join(self.folder.name, "torch.py"), "w", encoding="utf-8") as file:
            file.write("raise ModuleNotFoundError('torch')\n")
        where = os.pathsep.join([self.folder.name, os.path.dirname(os.path.dirname(minrnn.__file__))])
        done = subprocess.run([sys.executable, "-m", "minrnn.bench", "--help"], capture_output=True, text=True,
                              env={**os.environ, "PYTHONPATH": where})
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        self.assertIn("pip install torch", done.stderr)

    @unittest.skipUnless(sys.version_info < (3, 13), "its module for interpreters has another name")
    def test_a_second_interpreter_is_refused(self):
        program = """
            import minrnn, _xxsubinterpreters as all
            other = all.create()
            try:
                all.run_string(other, "import minrnn")
            except Exception as error:
                assert "interpreter" in str(error), error
            else:
                raise SystemExit("was not refused")
            try:
                minrnn.load("there/is/none")
            except minrnn.FileError:
                pass
        """
        done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main()
