"""Models: trained, scored, written with, saved and loaded again."""
import copy
import os
import pathlib
import pickle
import signal
import tempfile
import threading
import unittest

import numpy as np

import minrnn

TEXT = "the cat sat on the mat. " * 40


def text_model(**more):
    return minrnn.Model(**{"vocab": "bytes", "layers": 1, "dim": 24, "lr": 0.01, "seed": 2, **more})


def text_batches(model, steps, T=32, B=8):
    ids = model.encode(TEXT)
    rng = np.random.default_rng(0)
    for _ in range(steps):
        at = rng.integers(0, len(ids) - T - 1, B)
        yield dict(ids=np.stack([ids[i:i + T] for i in at]), target=np.stack([ids[i + 1:i + T + 1] for i in at]))


class Models(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.safetensors")
        self.addCleanup(self.folder.cleanup)

    def test_a_model_learns_a_text(self):
        model = text_model()
        before = model.score(TEXT).nats_per_token
        seen = []
        result = model.fit(text_batches(model, 80), callback=lambda r: seen.append(r.step))
        self.assertEqual(seen, list(range(1, 81)))
        self.assertEqual((result.step, model.steps, result.rows), (80, 80, 256))
        score = model.score(TEXT)
        self.assertLess(score.nats_per_token, before / 2)
        self.assertEqual(score.logprobs.shape, (len(TEXT) - 1,))
        self.assertAlmostEqual(-float(score.logprobs.mean()), score.nats_per_token, 5)
        # scores of pieces, and of a batch, are the same
        np.testing.assert_allclose(model.score(TEXT, chunk=7).logprobs, score.logprobs, atol=1e-4)
        ids = model.encode(TEXT)
        losses = model.losses(ids=ids[None, :-1], target=ids[None, 1:])
        np.testing.assert_allclose(-losses[0], score.logprobs, atol=1e-4)
        scores = model.forward(ids[None, :-1])[0].astype(np.float64)
        logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
        np.testing.assert_allclose(logs[np.arange(len(ids) - 1), ids[1:]], score.logprobs, atol=1e-4)

    def test_the_same_seed_is_the_same_model(self):
        a, b = text_model(), text_model(threads=1)
        a.fit(text_batches(a, 5))
        b.fit(text_batches(b, 5))
        for name, value in a.state_dict().items():
            np.testing.assert_array_equal(value, b.state_dict()[name], name)

    def test_micro_batches_and_own_losses_are_one_step(self):
        batch = next(text_batches(text_model(), 1))
        halves = [{k: v[i::2] for k, v in batch.items()} for i in range(2)]
        whole, micro, own = text_model(), text_model(), text_model()
        whole.fit([batch])
        micro.fit(halves, accumulate=2)
        scores = own.forward(batch["ids"], train=True).astype(np.float64)
        p = np.exp(scores) / np.exp(scores).sum(2, keepdims=True)
        np.subtract.at(p, (*np.indices(batch["target"].shape), batch["target"]), 1)
        own.backward(p / batch["target"].size)
        self.assertEqual(own.update().step, 1)
        for name, value in whole.state_dict().items():
            for other in micro, own:
                np.testing.assert_allclose(other.tensor(name), value, atol=2e-4, err_msg=name)
        with self.assertRaisesRegex(ValueError, "1 of 2"):
            micro.fit(halves[:1], accumulate=2)

    def test_tensors_are_seen_in_place(self):
        model = text_model()
        weights = model.state_dict()
        before = weights["head.weight"].copy()
        model.fit(text_batches(model, 1))
        self.assertFalse(np.array_equal(weights["head.weight"], before))
        weights["head.weight"][...] = 0
        np.testing.assert_array_equal(model.forward(np.zeros((1, 3), np.int32)), 0)
        kept = weights["head.weight"]
        del model, weights
        self.assertEqual(kept.sum(), 0)  # the array keeps its model alive
        model = text_model()
        self.assertTrue(model.tensor("head.weight", copy=True).flags.owndata)
        model.fit(text_batches(model, 1))
        self.assertEqual(model.state_dict("gradients").keys(), model.state_dict().keys())
        self.assertTrue(any(v.any() for v in model.state_dict("moment2").values()))
        with self.assertRaises(KeyError):
            model.tensor("no.such")

    def test_state_dicts_go_from_model_to_model(self):
        a, b = text_model(), text_model(seed=9)
        b.load_state_dict({name: value.copy() for name, value in a.state_dict().items()})
        self.assertEqual(a.score("abcabc").nats_per_token, b.score("abcabc").nats_per_token)
        tensors = dict(a.state_dict())
        tensors["head.weight"] = tensors["head.weight"][:, 1:]
        with self.assertRaisesRegex(ValueError, "^head.weight: has the shape"):
            b.load_state_dict(tensors)
        del tensors["head.weight"]
        with self.assertRaisesRegex(ValueError, "missing .'head.weight'"):
            b.load_state_dict(tensors)

    def test_files_pickles_and_copies_keep_a_model(self):
        model = text_model()
        model.fit(text_batches(model, 3))
        model.set_metadata("mine.author", "me")
        model.save(self.path)
        want = model.score(TEXT).nats_per_token
        for again in minrnn.load(self.path), pickle.loads(pickle.dumps(model)), copy.deepcopy(model):
            self.assertEqual(again.score(TEXT).nats_per_token, want)
            self.assertEqual((again.steps, again.vocab, again.metadata["mine.author"]), (3, "bytes", "me"))
        model.save(self.path, int8=True)
        self.assertAlmostEqual(minrnn.load(self.path).score(TEXT).nats_per_token, want, 1)
        with self.assertRaisesRegex(ValueError, "8-bit weights cannot be pickled"):
            pickle.dumps(minrnn.load(self.path))

    def test_training_goes_on_where_it_was_saved(self):
        model, other = text_model(), text_model(seed=5)
        batches = list(text_batches(model, 6))
        model.fit(batches[:3])
        model.save_training(self.path)
        other.load_training(self.path)
        other.set(seed=2, lr=0.01)
        model.fit(batches[3:])
        other.fit(batches[3:])
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(other.tensor(name), value, name)

    def test_streams_are_their_model(self):
        model = text_model(layers=2, conv=4)
        stream = model.stream()
        ids = model.encode("hello, world")
        whole = model.forward(ids[None])[0]
        for t, token in enumerate(ids):
            np.testing.assert_allclose(stream.step(token), whole[t], atol=1e-4)
        state = stream.save()
        after = stream.step(7)
        stream.load(state)
        np.testing.assert_array_equal(stream.step(7), after)
        stream.reset()
        np.testing.assert_allclose(stream.feed("hello, world"), whole[-1], atol=1e-4)
        with self.assertRaises(ValueError):
            stream.load(state[:-1])
        with self.assertRaisesRegex(ValueError, "token"):
            stream.step(256)

    def test_generation_depends_on_its_seed_alone(self):
        model = text_model()
        model.fit(text_batches(model, 60))
        text = "".join(model.generate("the cat", tokens=60, seed=4))
        self.assertEqual(text, "".join(model.generate("the cat", tokens=60, seed=4)))
        self.assertNotEqual(text, "".join(model.generate("the cat", tokens=60, seed=5)))
        likeliest = "".join(model.generate("the cat", tokens=60, temperature=0))
        self.assertEqual(likeliest[:16], "".join(model.generate("the cat", tokens=16, temperature=0)))
        stop = likeliest[20:23]
        self.assertEqual("".join(model.generate("the cat", tokens=60, temperature=0, stop=stop)),
                         likeliest[:likeliest.index(stop)])

    def test_values_and_scalers(self):
        model = minrnn.Model(input="reals", inputs=3, outputs=2, loss="mse", head="last", layers=1, dim=16, lr=0.02)
        rng = np.random.default_rng(3)
        values = (1000 + 10 * rng.standard_normal((32, 12, 3))).astype(np.float32)
        target = values[:, -1, :2] * 3
        model.fit_scaler(values=values, target_values=target)
        result = model.fit([dict(values=values, target_values=target)] * 150)
        self.assertLess(result.loss, 0.2)  # in scales
        self.assertEqual(model.forward(values=values).shape, (32, 2))
        self.assertLess(abs(model.forward(values=values) - target).mean(), 15)
        row = model.stream().feed(values[0])
        np.testing.assert_allclose(row, model.forward(values=values[:1])[0], rtol=1e-4)

    def test_errors_are_exceptions_with_a_sentence(self):
        model = text_model()
        ids = np.zeros((2, 3), np.int32)
        for pattern, call in (
                ("no such array", lambda: model.evaluate(ids=ids, targets=ids)),
                ("ids is missing", lambda: model.evaluate(target=ids)),
                ("ids has the shape", lambda: model.forward(ids[0])),
                ("target", lambda: model.evaluate(ids=ids, target=ids[:1])),
                ("ids", lambda: model.forward(ids + 256)),
                ("mixer", lambda: minrnn.Model(mixer="mingruu", vocab="bytes")),
                ("a score needs two", lambda: model.score("a"))):
            with self.assertRaisesRegex(ValueError, pattern):
                call()
        for pattern, call in (
                ("^no forward was kept: call forward.train=True. first", lambda: model.backward(np.zeros(3))),
                ("^there are no gradients: call backward first", model.update),
                ("^batches: must be an iterable of dicts", lambda: model.fit(5)),
                ("^batches.0.: is of int, and not a dict", lambda: model.fit([5])),
                ("^batches.1.: is of str", lambda: model.fit([dict(ids=ids, target=ids), "ids"])),
                ("^batches: is one batch", lambda: model.fit(dict(ids=ids, target=ids))),
                ("^tokens = -1: ", lambda: model.generate(tokens=-1)),
                ("^tokens = 1.5: ", lambda: model.generate(tokens=1.5)),
                ("^prompt: is empty", lambda: model.generate("")),
                ("^stop", lambda: model.generate(stop=3)),
                ("^chunk = 0", lambda: model.score("abc", chunk=0)),
                ("^token: .* is too large", lambda: model.stream().step(2**40)),
                ("^tokens: has the shape .2, 2.", lambda: model.score([[1, 2], [3, 4]])),
                ("^text: must be str or bytes, not int", lambda: model.encode(5)),
                ("^tokens: must be numbers, not None", lambda: model.stream().feed(None)),
                ("^ids: setting an array element", lambda: model.forward([[1, 2], [3]])),
                ("^batch: values: this model reads ids", lambda: model.forward(ids, values=ids)),
                ("^batch: 2 sequences of 0 tokens", lambda: model.forward(ids[:, :0])),
                ("^target is missing", lambda: model.evaluate(ids=ids)),
                ("^callback: is of int", lambda: model.fit([], callback=5)),
                ("^which = 'foo': must be one of weights", lambda: model.state_dict("foo")),
                ("^tensors: must be a dict", lambda: model.load_state_dict(5)),
                ("^threads = 'x'", lambda: text_model(threads="x")),
                ("^device: must be a text", lambda: text_model(device=None))):
            with self.subTest(pattern), self.assertRaisesRegex(ValueError, pattern):
                call()
        model.forward(ids, train=True)
        for call in lambda: model.forward(ids), lambda: model.fit([dict(ids=ids, target=ids)]):
            with self.assertRaisesRegex(ValueError, "^this thread keeps a forward of this net: call backward or drop "):
                call()
        model.drop()
        model.forward(ids)
        with self.assertRaises(minrnn.FileError):
            minrnn.load(os.path.join(self.folder.name, "none"))
        with open(self.path, "wb") as file:
            file.write(b"not a model")
        with self.assertRaisesRegex(minrnn.FormatError, "model.safetensors"):
            minrnn.load(self.path)
        with self.assertRaisesRegex(minrnn.DeviceError, "^device cuda:77|^no CUDA device"):
            minrnn.context("cuda:77")

    def test_shapes_are_checked_and_not_only_sizes(self):
        model, ids = text_model(), np.zeros((2, 4), np.int32)
        for name, wrong in (("target", ids.T), ("target", ids.ravel()), ("reset", ids.T), ("length", [[4, 4]])):
            with self.assertRaisesRegex(minrnn.InvalidArgument, f"^{name}: has the shape"):
                model.evaluate(**{"ids": ids, "target": ids, name: wrong})
        scores = model.forward(ids, train=True)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^dscores: has the shape"):
            model.backward(scores.transpose(1, 0, 2))
        model.backward(scores)
        last = minrnn.Model(input="reals", inputs=2, outputs=1, loss="mse", head="last", layers=1, dim=8)
        values = np.zeros((3, 4, 2), np.float32)
        last.evaluate(values=values, target_values=np.zeros((3, 1)))
        for name, wrong in ("target_values", np.zeros(3)), ("mask", np.ones((3, 1))):
            with self.assertRaisesRegex(minrnn.InvalidArgument, f"^{name}: has the shape"):
                last.evaluate(**{"values": values, "target_values": np.zeros((3, 1)), name: wrong})

    def test_the_best_weights(self):
        model = text_model()
        with self.assertRaisesRegex(minrnn.InvalidArgument, "there are no best weights: call mark_best first"):
            model.save(self.path, best=True)
        model.mark_best()
        before = model.tensor("head.weight", copy=True)
        model.fit(text_batches(model, 2))
        model.save(self.path, best=True)
        np.testing.assert_array_equal(minrnn.load(self.path).tensor("head.weight"), before)
        np.testing.assert_array_equal(model.state_dict("best")["head.weight"], before)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^int8, best"):
            model.save(self.path, best=True, int8=True)

    def test_numbers_are_never_changed_on_their_way(self):
        model = text_model()
        ids = np.zeros((2, 4), np.int64)
        for wrong in (ids + 2**32, ids + 0.5, np.full((2, 4), np.nan), np.uint64(2**63) + ids.astype(np.uint64),
                      ids + 1j, ids.astype(str), np.ma.array(ids, mask=True)):
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^ids"):
                model.forward(wrong)
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^target"):
                model.fit([dict(ids=ids, target=wrong)])
        reals = minrnn.Model(input="reals", inputs=1, outputs=1, loss="mse", layers=1, dim=8)
        for name in "mask", "reset":
            for wrong in 256, -1, np.nan:
                with self.assertRaisesRegex(minrnn.InvalidArgument, f"^{name}.0..0. = "):
                    reals.fit([{"values": ids[..., None], "target_values": ids[..., None],
                                name: np.full((2, 4), wrong)}])
        for good in ids + 0.0, ids.astype(np.uint64), ids.tolist(), ids > 5, ids.astype(object):
            np.testing.assert_array_equal(model.forward(good), model.forward(ids))
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^token = 1.5"):
            model.stream().step(1.5)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^tokens.1. = 4294967297"):
            model.score([1, 2**32 + 1])
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^reset"):
            minrnn.scan(np.ones((1, 2, 3)), np.ones((1, 2, 3)), reset=[[256, 0]])
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^accumulate = 0"):
            model.fit([], accumulate=0)

    def test_rows_of_values_are_not_folded(self):
        model = minrnn.Model(input="reals", inputs=3, outputs=1, loss="mse", layers=1, dim=8)
        rows = np.arange(12, dtype=np.float32).reshape(4, 3)
        want = model.stream().feed(rows)
        np.testing.assert_array_equal(model.stream().feed(rows.T.copy().T), want)
        for wrong in rows.T, rows.reshape(2, 6), np.ones(4):
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^values: has the shape"):
                model.stream().feed(wrong)

    def test_a_state_dict_is_taken_whole_or_not_at_all(self):
        model = text_model()
        before = {name: value.copy() for name, value in model.state_dict().items()}
        wrong = {name: value + 1 for name, value in before.items()}
        wrong[sorted(wrong)[-1]][...] = np.nan
        with self.assertRaisesRegex(minrnn.InvalidArgument, "NaN or infinite"):
            model.load_state_dict(wrong)
        for name, value in model.state_dict().items():
            np.testing.assert_array_equal(value, before[name], name)

    def test_other_threads_run_meanwhile(self):
        model = text_model(dim=64, layers=2)
        ticks, stop = [], threading.Event()

        def tick():
            while not stop.wait(0.001):
                ticks.append(1)

        thread = threading.Thread(target=tick)
        thread.start()
        model.fit(text_batches(model, 10, T=128, B=16))
        stop.set()
        thread.join()
        self.assertGreater(len(ticks), 10)

    def test_ctrl_c_ends_training_between_steps(self):
        model = text_model()
        before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job ignores it
        self.addCleanup(signal.signal, signal.SIGINT, before)

        def batches():
            for i, batch in enumerate(text_batches(model, 1000)):
                if i == 5:
                    os.kill(os.getpid(), signal.SIGINT)
                yield batch

        with self.assertRaises(KeyboardInterrupt):
            model.fit(batches())
        self.assertTrue(5 <= model.steps < 1000)

    def test_a_vocabulary_of_characters(self):
        model = minrnn.Model(vocab=sorted(set("the cät")), layers=1, dim=8)
        self.assertEqual((model.outputs, model.decode(model.encode("tät"))), (6, "tät"))
        with self.assertRaisesRegex(minrnn.DataError, "."):
            model.encode("dog")

    def test_streams_are_pickled_with_their_model(self):
        stream = text_model().stream()
        stream.feed("abc")
        other = pickle.loads(pickle.dumps(stream))
        np.testing.assert_array_equal(other.step(100), stream.step(100))
        self.assertIn("bytes of state", repr(stream))

    def test_paths_of_any_kind(self):
        model = text_model()
        for path in os.fsencode(self.path), pathlib.Path(self.path), self.path + "ä":
            model.save(path)
            self.assertEqual(minrnn.load(path).parameters, model.parameters)

    def test_what_notebooks_show(self):
        model = text_model()
        self.assertIn("mingru", repr(model))
        self.assertIn("<table>", model._repr_html_())
        self.assertIn("head.weight", model._repr_html_())
        self.assertEqual(model.config["dim"], "24")

    def test_logs_are_columns(self):
        with open(os.path.join(self.folder.name, "log.jsonl"), "w", encoding="utf-8") as file:
            file.write('{"kind":"step","step":1,"loss":2.5,"lr":0.1}\n{"kind":"eval","step":1,"loss":2}\n'
                       '{"kind":"step","step":2,"loss":1.5,"lr":0.1}\n{"kind":"st')
        log = minrnn.read_log(self.folder.name)
        self.assertEqual(log.steps["loss"].tolist(), [2.5, 1.5])
        self.assertEqual(log.evals["step"].tolist(), [1])
        self.assertIn("2 steps", repr(log))
        self.assertIsNone(log._repr_svg_())
        with open(os.path.join(self.folder.name, "curve.svg"), "w", encoding="utf-8") as file:
            file.write("<svg/>")
        self.assertEqual(log._repr_svg_(), "<svg/>")


if __name__ == "__main__":
    unittest.main()
