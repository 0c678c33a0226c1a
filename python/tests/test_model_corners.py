"""Models where no test looked: what options, masks and carry do, threads, references, damaged logs."""
import copy
import json
import os
import pickle
import sys
import tempfile
import threading
import time
import unittest
from unittest import mock

import numpy as np
from test_models import TEXT, text_batches, text_model

import minrnn


def values_model(**more):
    return minrnn.Model(**{"input": "reals", "inputs": 2, "outputs": 1, "loss": "mse", "layers": 1, "dim": 8,
                           "seed": 4, **more})


class ModelCorners(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = os.path.join(self.folder.name, "model.safetensors")
        self.addCleanup(self.folder.cleanup)

    # ---- training

    def test_carry_goes_on_where_the_last_batch_ended(self):
        batch, results = next(text_batches(text_model(), 1)), []
        parts = [{name: value[:, at:at + 16] for name, value in batch.items()} for at in (0, 16)]
        model = text_model(lr=1e-12)
        want = model.losses(**batch)
        model.fit(parts, carry=True, callback=lambda r: results.append(r.loss))
        np.testing.assert_allclose(results, [want[:, :16].mean(), want[:, 16:].mean()], rtol=1e-5)
        self.assertNotAlmostEqual(model.evaluate(**parts[1]).loss, results[1], 4)

    def test_a_callback_stops_training(self):
        model = text_model()
        result = model.fit(text_batches(model, 10), callback=lambda r: r.step == 3)
        self.assertEqual((result.step, model.steps), (3, 3))

    def test_drop_discards_gradients(self):
        model = text_model()
        scores = model.forward(np.zeros((1, 3), np.int32), train=True)
        model.backward(scores)
        model.drop()
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^there are no gradients"):
            model.update()

    def test_an_evaluation_changes_nothing(self):
        model, batch = text_model(), next(text_batches(text_model(), 1))
        before = model.tensor("head.weight", copy=True)
        result = model.evaluate(**batch)
        self.assertEqual((result.step, model.steps, result.rows), (0, 0, 256))
        self.assertAlmostEqual(result.loss, float(model.losses(**batch).mean()), 5)
        np.testing.assert_array_equal(model.tensor("head.weight"), before)

    def test_a_result_names_its_numbers(self):
        model, batch = text_model(lr=0.0123, schedule="constant", warmup=0), next(text_batches(text_model(), 1))
        scores = model.forward(batch["ids"])
        result = model.fit([batch])
        self.assertAlmostEqual(result.lr, 0.0123, 6)
        self.assertGreater(result.grad_norm, 0.05)
        self.assertAlmostEqual(result.accuracy, float((scores.argmax(2) == batch["target"]).mean()), 6)

    def test_numbers_that_are_not_finite_are_an_error(self):
        model = text_model()
        batches = list(text_batches(model, 1))
        model.tensor("head.weight")[...] = np.nan
        with self.assertRaises(minrnn.NotFinite):
            model.fit(batches)

    # ---- batches

    def test_masked_rows_do_not_count(self):
        model, rng = values_model(), np.random.default_rng(1)
        values, target = (rng.standard_normal(shape).astype(np.float32) for shape in ((2, 6, 2), (2, 6, 1)))
        mask = np.zeros((2, 6), np.uint8)
        mask[0, 2:5] = mask[1, 1] = 1
        result = model.evaluate(values=values, target_values=target, mask=mask)
        self.assertEqual(result.rows, 4)
        wrong = np.square(model.forward(values=values) - target)[..., 0]
        self.assertAlmostEqual(result.loss, float(wrong[mask == 1].mean()), 5)
        self.assertNotAlmostEqual(result.loss, float(wrong.mean()), 3)

    def test_a_mask_of_sequences(self):
        model, rng = values_model(head="last"), np.random.default_rng(1)
        batch = dict(values=rng.standard_normal((3, 6, 2)), target_values=rng.standard_normal((3, 1)))
        result, losses = model.evaluate(**batch, mask=[1, 0, 1]), model.losses(**batch)
        self.assertAlmostEqual(result.loss, (losses[0] + losses[2]) / 2, 5)
        with self.assertRaisesRegex(minrnn.InvalidArgument, r"^mask: has the shape \(3, 6\), where \(3,\)"):
            model.evaluate(**batch, mask=np.ones((3, 6)))

    def test_a_reset_starts_a_sequence(self):
        model, ids = text_model(), text_model().encode(TEXT)[None, :12]
        reset = np.zeros((1, 12), np.uint8)
        reset[0, 5] = 1
        parts = np.concatenate([model.forward(ids[:, :5]), model.forward(ids[:, 5:])], 1)
        np.testing.assert_allclose(model.forward(ids, reset=reset), parts, atol=1e-5)
        self.assertGreater(abs(model.forward(ids) - parts).max(), 1e-3)

    def test_a_length_ends_one(self):
        for head in "last", "mean":
            model = values_model(head=head)
            values = np.random.default_rng(1).standard_normal((2, 9, 2)).astype(np.float32)
            got = model.forward(values=values, length=[4, 9])
            np.testing.assert_allclose(got[:1], model.forward(values=values[:1, :4]), atol=1e-5)
            np.testing.assert_allclose(got[1:], model.forward(values=values[1:]), atol=1e-5)

    def test_one_loss_for_each_sequence(self):
        model, rng = values_model(head="last"), np.random.default_rng(1)
        values, target = rng.standard_normal((3, 4, 2)), rng.standard_normal((3, 1))
        losses = model.losses(values=values, target_values=target)
        self.assertEqual(losses.shape, (3,))
        np.testing.assert_allclose(losses, np.square(model.forward(values=values) - target)[:, 0], rtol=1e-4)

    def test_pairs_need_two(self):
        model = minrnn.Model(input="tokens", inputs=5, outputs=2, head="pair-last", layers=1, dim=8)
        self.assertEqual(model.forward(np.zeros((4, 3), np.int32)).shape, (2, 2))
        with self.assertRaisesRegex(minrnn.InvalidArgument, "3 sequences of 2 tokens; .* an even number of sequences"):
            model.forward(np.zeros((3, 2), np.int32))

    def test_only_whole_and_real_numbers(self):
        model = values_model()
        for wrong in np.ones((1, 3, 2)) + 1j, np.full((1, 3, 2), "1"):
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^values: must be numbers"):
                model.forward(values=wrong)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^tokens = True"):
            text_model().generate(tokens=True)

    # ---- streams

    def test_streams_of_values_step_by_step(self):
        model, values = values_model(), np.random.default_rng(1).standard_normal((1, 6, 2)).astype(np.float32)
        stream, whole = model.stream(), model.forward(values=values)[0]
        for t in range(6):
            np.testing.assert_allclose(stream.step(values[0, t]), whole[t], atol=1e-5)
        for wrong in values[:, 0], np.ones(3), 1.0:
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^values: has the shape"):
                stream.step(wrong)

    def test_copies_of_streams_are_their_own(self):
        stream = text_model().stream()
        stream.feed("abc")
        for make in copy.copy, copy.deepcopy:
            other = make(stream)
            want = stream.clone().step(100)
            np.testing.assert_array_equal(other.step(100), want)
            np.testing.assert_array_equal(stream.clone().step(100), want)  # which the copy's step has left alone

    def test_a_stream_goes_on_after_an_error(self):
        stream = text_model().stream()
        want = stream.clone().step(7)
        for wrong in (lambda: stream.step(256), lambda: stream.feed([1, 256]), lambda: stream.load(b"no state")):
            with self.assertRaises(ValueError):
                wrong()
        stream.reset()
        np.testing.assert_array_equal(stream.step(7), want)

    def test_a_stream_serves_one_thread_at_a_time(self):
        model = text_model(dim=128, layers=4)
        stream, refused, long = model.stream(), [], np.zeros(40000, np.int32)
        out = np.empty(256, np.float32)
        held = sys.getrefcount(out)

        def attempt(call, *arguments):
            try:
                call(*arguments)
            except RuntimeError as error:
                refused.append(str(error))
        for _ in range(20):  # where the threads do not meet, as on a busy machine, they try again
            thread = threading.Thread(target=attempt, args=(stream.feed, long))
            thread.start()
            while thread.is_alive() and not refused:
                attempt(stream._core.step, 1, out)
            thread.join()
            if refused:
                break
        self.assertEqual(set(refused), {"this stream is in use by another thread"})
        self.assertEqual(sys.getrefcount(out), held)
        stream.step(1)

    # ---- text

    def test_sampling_follows_its_options(self):
        model = text_model()
        model.fit(text_batches(model, 60))
        likeliest = "".join(model.generate("the cat", tokens=40, temperature=0))
        usual = "".join(model.generate("the cat", tokens=40, temperature=1.0, seed=3))
        self.assertNotEqual(usual, likeliest)
        self.assertEqual("".join(model.generate("the cat", tokens=40, top_k=1, seed=3)), likeliest)
        self.assertEqual("".join(model.generate("the cat", tokens=40, top_p=1e-6, seed=3)), likeliest)
        self.assertNotEqual("".join(model.generate("the cat", tokens=40, temperature=2.0, seed=3)), usual)
        self.assertNotEqual("".join(model.generate("the cat", tokens=40, seed=3 + 2**32)), usual)

    def test_text_does_not_depend_on_its_pieces(self):
        model = text_model()
        model.fit(text_batches(model, 60))
        likeliest = "".join(model.generate("the cat", tokens=40, temperature=0))
        drawn = "".join(model.generate("the cat", tokens=40, seed=3))
        stops = likeliest[9:13], likeliest[20:23], likeliest[-3:] + "\0"
        early = min(likeliest.index(stop) for stop in stops[:2])
        for few in 1, 2, 3, 5, 64:
            with mock.patch("minrnn.generate.FEW", few):
                self.assertEqual("".join(model.generate("the cat", tokens=40, seed=3)), drawn)
                for stop in stops[:2]:
                    got = "".join(model.generate("the cat", tokens=40, temperature=0, stop=stop))
                    self.assertEqual(got, likeliest[:likeliest.index(stop)])
                for both in stops[:2], stops[1::-1]:  # the first in the text, in whatever order they are given
                    got = "".join(model.generate("the cat", tokens=40, temperature=0, stop=both))
                    self.assertEqual(got, likeliest[:early])
                got = "".join(model.generate("the cat", tokens=40, temperature=0, stop=stops[2]))
                self.assertEqual(got, likeliest)  # the beginning of a stop text at the end is text
        for wrong in "", ["a", ""]:
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^stop"):
                model.generate(stop=wrong)

    def test_no_piece_is_empty(self):
        model = text_model()
        first = "".join(model.generate("the cat", tokens=16, temperature=0))[:1]
        self.assertEqual(list(model.generate("the cat", tokens=16, temperature=0, stop=first)), [])
        self.assertNotIn("", list(model.generate("the cat", tokens=64, stop="\0\0")))

    def test_a_character_cut_off_at_the_end_is_shown(self):
        model = text_model(head_bias=True)
        model.tensor("head.bias")["é".encode()[0]] = 1000
        self.assertEqual("".join(model.generate("a", tokens=1)), "\ufffd")

    def test_characters_of_four_bytes(self):
        model = minrnn.Model(vocab=["a", "🦀"], layers=1, dim=8)
        self.assertEqual(model.decode(model.encode("🦀" * 9)), "🦀" * 9)

    # ---- files, copies, contexts

    def test_copies_stay_on_their_device(self):
        model = text_model(bf16=True, threads=1)
        model.save(self.path)
        ids = model.encode(TEXT)[None, :20]
        want = model.forward(ids)
        self.assertFalse(np.array_equal(minrnn.load(self.path).forward(ids), want))
        opened = minrnn.load(self.path, bf16=True, threads=1)
        for again in opened, copy.deepcopy(opened), pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(model)))):
            np.testing.assert_array_equal(again.forward(ids), want)

    def test_contexts_are_shared_by_all_that_ask_for_the_same(self):
        self.assertIs(minrnn.context("cpu", 1), minrnn.context("cpu", threads=1))
        made = {id(minrnn.context("cpu", *more)) for more in ((1,), (2,), (1, True), (1, False, True))}
        self.assertEqual(len(made), 4)

    def test_a_config_has_what_was_given(self):
        config = text_model(mixer_bias=False, lr=0.25).config
        self.assertEqual((config["mixer-bias"], float(config["lr"])), ("no", 0.25))

    def test_a_path_with_a_zero_byte(self):
        with self.assertRaisesRegex(ValueError, "^path: has a zero byte"):
            text_model().save(self.path + "\0more")
        self.assertEqual(os.listdir(self.folder.name), [])

    def test_heads_by_name(self):
        for head in "last", "mean", "pair-last", "pair-mean":
            self.assertEqual(values_model(head=head).head, head)

    def test_a_view_or_an_error(self):
        model = text_model()
        self.assertTrue(np.shares_memory(model.tensor("head.weight", copy=False), model.tensor("head.weight")))

    def widest_wait(self, call):
        """The longest time for which another thread did not run, as a share of the call's."""
        times, done = [], threading.Event()

        def tick():
            while not done.wait(0.0005):
                times.append(time.perf_counter())
        thread = threading.Thread(target=tick)
        thread.start()
        start = time.perf_counter()
        call()
        end = time.perf_counter()
        done.set()
        thread.join()
        inside = [start, *(t for t in times if start < t < end), end]
        return max(b - a for a, b in zip(inside, inside[1:])) / (end - start)

    def test_other_threads_run_within_a_call(self):
        """And not only between calls, as where Python takes turns by itself."""
        model = text_model(dim=96, layers=2)
        batch, long = next(text_batches(model, 1, T=128, B=64)), np.zeros(20000, np.int32)
        x, weight = np.zeros((16, 2000, 64), np.float32), np.zeros((512, 64), np.float32)
        wide = np.zeros((8, 4000, 64))
        calls = {"fit": lambda: model.fit([batch]), "evaluate": lambda: model.evaluate(**batch),
                 "forward": lambda: model.forward(batch["ids"]), "feed": lambda: model.stream().feed(long),
                 "score": lambda: model.score(long, chunk=20000), "scan": lambda: minrnn.scan(wide, wide),
                 "mingru": lambda: minrnn.mingru(x, weight)}
        for name, call in calls.items():
            call()
            self.assertLess(min(self.widest_wait(call) for _ in range(8)), 0.5, name)

    def test_nothing_is_left_of_calls(self):
        """No array, tensor, stream or context is held by the extension when it is done with it."""
        model, ids = text_model(), np.zeros((2, 4), np.int32)
        out = np.empty((2, 4, 256), np.float32)
        held = sys.getrefcount(ids), sys.getrefcount(out)
        for _ in range(5):
            model._net.run(0, (2, 4, ids, None, None, None, None, None, None), out)
            model.evaluate(ids=ids, target=ids)
            model.stream().feed(ids[0])
            model.score(ids[0])
        self.assertEqual((sys.getrefcount(ids), sys.getrefcount(out)), held)
        place = minrnn.context("cpu", 3)
        held = sys.getrefcount(place), sys.getrefcount(model._net)
        for _ in range(5):
            text_model(threads=3).stream().step(1)
            model.stream().step(1)
            model.tensor("head.weight").sum()
        self.assertEqual((sys.getrefcount(place), sys.getrefcount(model._net)), held)
        kinds = minrnn._core.Net, minrnn._core.Stream, minrnn._core.View
        held = [sys.getrefcount(kind) for kind in kinds]
        for _ in range(5):
            text_model().stream().step(1)
            model.tensor("head.weight").sum()
        self.assertEqual([sys.getrefcount(kind) for kind in kinds], held)

    def test_long_sentences_are_cut_off(self):
        for word in " is NULL", "mr_net_keep_forward":  # which are longer in the words of Python
            with self.assertRaises(minrnn.FileError) as caught:
                minrnn.load(word * 120)
            self.assertLess(len(str(caught.exception)), 1100)

    def test_asking_does_not_grow_memory(self):
        import tracemalloc
        model = text_model()
        model.set_metadata("mine.author", "me")

        def ask():
            for _ in range(100):
                model.metadata, model._net.tensors(), model.config, model.encode("abc")
        ask()
        tracemalloc.start()
        ask()
        before = tracemalloc.get_traced_memory()[0]
        ask()
        grown = tracemalloc.get_traced_memory()[0] - before
        tracemalloc.stop()
        self.assertLess(grown, 3000)

    def test_the_extension_checks_arrays_itself(self):
        net, ids = text_model()._net, np.zeros((2, 4), np.int32)
        out = np.empty((2, 4, 256), np.float32)
        batch = (2, 4, ids, None, None, None, None, None, None)
        frozen = out.copy()
        frozen.flags.writeable = False
        for pattern, array in (("^out: has 8 elements of 4 bytes, where 2048 of 4", ids),
                               ("^out: has 1024 elements of 8 bytes", np.empty(1024)),
                               ("^out: must be a contiguous writable array", frozen),
                               ("^out: must be a contiguous writable array", out.transpose(2, 1, 0))):
            with self.assertRaisesRegex(ValueError, pattern):
                net.run(0, batch, array)
        for name in "head", "head.weight.", "":
            with self.assertRaisesRegex(KeyError, "there is no such tensor"):
                net.get(0, name, np.empty((256, 8), np.float32))
        with self.assertRaisesRegex(ValueError, "^path: has a zero byte"):
            minrnn._core.net_open(minrnn.context(), b"a\0b")
        text_model().save(self.path)
        self.assertIsNone(minrnn._core.file_meta(os.fsencode(self.path), "mine.author"))
        pairs = minrnn.Model(input="tokens", inputs=5, outputs=2, head="pair-last", layers=1, dim=8)._net
        for B, T in (0, 4), (-1, 4), (2, 0):
            with self.assertRaisesRegex(ValueError, f"^batch: {B} sequences of {T} tokens"):
                net.run(0, (B, T, ids, None, None, None, None, None, None), out)
        with self.assertRaisesRegex(ValueError, "^B = 1: this model takes pairs"):
            pairs.run(0, (1, 8, ids, None, None, None, None, None, None), np.empty((1, 2), np.float32))
        with self.assertRaisesRegex(ValueError, "^scan: -1 is not a size"):
            minrnn._core.raw_scan(minrnn.context(), 0, 0, -1, 1, 1, 0, *[None] * 12, 0, 0)

    # ---- logs

    def test_logs_that_are_damaged(self):
        path = os.path.join(self.folder.name, "log.jsonl")
        rows = [{"kind": "step", "step": 1, "loss": 2.5}, {"kind": "step", "step": 2, "loss": 1.5, "lr": 0.1}]
        with open(path, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
        log = minrnn.read_log(path)
        self.assertEqual(log.folder, self.folder.name)
        self.assertIn("last loss 1.5)", repr(log))
        np.testing.assert_array_equal(log.steps["lr"], [np.nan, 0.1])
        with open(path, "a", encoding="utf-8") as file:
            file.write('{"kind":"st\n{"kind":"step","step":3,"loss":1}\n')
        with self.assertRaisesRegex(ValueError, "log.jsonl, line 3: is not JSON"):
            minrnn.read_log(self.folder.name)


if __name__ == "__main__":
    unittest.main()
