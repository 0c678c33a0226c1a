"""Copies, pickles and state dicts: a model goes whole, with its scaler, its training and its attributes."""
import copy
import importlib.util
import os
import pickle
import tempfile
import unittest

import numpy as np

import minrnn
from minrnn.command import command


def batches(count, T=16, B=4, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ids = rng.integers(97, 107, (B, T + 1))
        yield dict(ids=ids[:, :-1], target=ids[:, 1:])


class Named(minrnn.Model):
    """A class of one's own, at the top of its module, so that pickle finds it."""


class Copies(unittest.TestCase):
    def same(self, a, b, which="weights"):
        for name, value in a.state_dict(which).items():
            np.testing.assert_array_equal(b.state_dict(which)[name], value, f"{which} {name}")

    def test_training_goes_on_in_a_copy(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=16, lr=0.01, schedule="cosine", seed=3, steps=20, dropout=0.1)
        model.fit(batches(3))
        model.set(lr=0.02, clip=0.5)
        model.mark_best()
        model.fit(batches(2))
        copies = copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)
        more = list(batches(4, seed=1))
        results = [m.fit(more) for m in (model, *copies)]
        for other, result in zip(copies, results[1:]):
            self.assertEqual((result, other.config), (results[0], model.config))
            for which in "weights", "moment1", "moment2", "best":
                self.same(model, other, which)

    def test_best_weights_of_a_model_without_a_step(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8)
        model.mark_best()
        self.same(model, copy.deepcopy(model), "best")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model")
            model.save(path, int8=True)
            with self.assertRaisesRegex(minrnn.InvalidArgument, "^a model with 8-bit weights cannot be pickled"):
                pickle.dumps(minrnn.load(path))

    def test_training_by_ones_own_loss_goes_on_in_a_copy(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8)
        model.backward(model.forward([[1, 2]], train=True))
        model.update()
        resumed = minrnn.Model(vocab="bytes", layers=1, dim=8)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "training")
            model.save_training(path)
            resumed.load_training(path)
        for one in model, resumed:
            self.same(model, copy.deepcopy(one), "moment1")
        fitted = minrnn.Model(vocab="bytes", layers=1, dim=8)
        fitted.fit(batches(1))
        self.same(fitted, copy.deepcopy(fitted), "moment1")
        self.assertGreater(abs(model.tensor("head.weight", "moment1")).max(), 0)

    def test_a_copy_has_no_forward(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8)
        model.backward(model.forward([[1, 2]], train=True))
        with self.assertRaisesRegex(minrnn.InvalidArgument, "^no forward was kept"):
            copy.deepcopy(model).backward(np.zeros((1, 1, 256)))

    def test_a_model_that_did_not_train(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=16, lr=0.01)
        other = copy.deepcopy(model)
        self.assertEqual(other.config, model.config)
        self.same(model, other)
        with self.assertRaisesRegex(minrnn.InvalidArgument, "no best weights"):
            other.state_dict("best")

    def test_classes_and_attributes_of_ones_own(self):
        model = Named(vocab="bytes", layers=1, dim=8)
        model.notes, model.itself = ["a"], model
        for other in copy.deepcopy(model), pickle.loads(pickle.dumps(model)):
            self.assertIs(type(other), Named)
            self.assertEqual(other.notes, ["a"])
            self.assertIsNot(other.notes, model.notes)
            self.assertIs(other.itself, other)

    def test_a_model_is_copied_once(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8)
        stream = model.stream()
        stream.feed("abc")
        for other in copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x)):
            for names in ("m", "s"), ("s", "m"):
                got = other({name: {"m": model, "s": stream}[name] for name in names})
                self.assertIs(got["s"]._model, got["m"])
                np.testing.assert_array_equal(got["s"].step(100), stream.clone().step(100))
        self.assertIs(copy.copy(stream)._model, model)

    def scaled(self):
        model = minrnn.Model(input="reals", inputs=3, outputs=2, loss="mse", layers=1, dim=8)
        values = 1000 + 10 * np.random.default_rng(3).standard_normal((8, 12, 3))
        return model, dict(values=values, target_values=values[:, :, :2] * 3)

    def test_a_state_dict_has_the_scaler(self):
        model, batch = self.scaled()
        self.assertEqual(model.scaler, {})
        plain = dict(model.state_dict())
        model.fit_scaler(**batch)
        model.fit([batch] * 3)
        tensors = model.state_dict()
        np.testing.assert_allclose(tensors["scaler.input.mean"], batch["values"].mean((0, 1)), rtol=1e-6)
        tensors["scaler.target.scale"] *= 2  # a copy
        tensors = model.state_dict()
        other = self.scaled()[0]
        other.load_state_dict(tensors)
        np.testing.assert_array_equal(other.forward(values=batch["values"]), model.forward(values=batch["values"]))
        model.load_state_dict(tensors)  # of a trained model with the same scaler
        model.load_state_dict({name: x.astype(np.float32) for name, x in tensors.items()})
        model.load_state_dict(plain)  # which has none: the scaler stays
        np.testing.assert_array_equal(model.scaler["input_mean"], other.scaler["input_mean"])
        with self.assertRaisesRegex(minrnn.InvalidArgument, "missing .'scaler.input.mean'"):
            model.load_state_dict({k: x for k, x in tensors.items() if k != "scaler.input.mean"})
        changed = {**tensors, "scaler.input.mean": tensors["scaler.input.mean"] + 1}
        with self.assertRaisesRegex(minrnn.InvalidArgument, "already trained 3 steps; set the scaler before"):
            model.load_state_dict(changed)
        self.assertEqual(model.state_dict("gradients").keys(), plain.keys())

    @unittest.skipUnless(command(), "the command is not built: weights of other programs were not read")
    def test_a_scaler_goes_through_other_forms(self):
        model, batch = self.scaled()
        model.fit_scaler(**batch)
        want = model.forward(values=batch["values"])
        sources = [model, model.state_dict()]
        if importlib.util.find_spec("torch"):
            sources.append(minrnn.to_torch(model))
        for source in sources:
            got = minrnn.from_state_dict(source)
            self.assertEqual({k: x.tolist() for k, x in got.scaler.items()},
                             {k: x.tolist() for k, x in model.scaler.items()})
            np.testing.assert_allclose(got.forward(values=batch["values"]), want, rtol=1e-6)

    def test_what_training_has_chosen_is_no_setting(self):
        model = minrnn.Model(vocab="bytes", layers=1, dim=8, recompute="auto")
        model.fit(batches(1))
        self.assertEqual(copy.deepcopy(model).config["recompute"], "auto")
        model.set(recompute="blocks")
        self.assertEqual(copy.deepcopy(model).config["recompute"], "blocks")

    def test_a_model_that_compares_in_its_own_way(self):
        class Own(minrnn.Model):
            def __eq__(self, other):
                return True
        model, ids = Own(vocab="bytes", layers=1, dim=8), np.zeros((1, 3), np.int32)
        model.backward(model.forward(ids, train=True))
        model.update()
        self.assertEqual(model.steps, 1)

    def test_a_scaler_of_ones_own(self):
        model = self.scaled()[0]
        model.set_scaler(input_mean=[1, 2, 3], input_scale=[4, 5, 6])
        self.assertEqual({name: x.tolist() for name, x in model.scaler.items()},
                         {"input_mean": [1, 2, 3], "input_scale": [4, 5, 6]})
        for pattern, wrong in (("^input_mean: has the shape", dict(input_mean=[1], input_scale=[1, 1, 1])),
                               ("a mean without its scale", dict(input_mean=[1, 2, 3])),
                               ("scales must be finite and above 0", dict(target_mean=[1, 2], target_scale=[0, 1])),
                               ("^target_mean: must be numbers", dict(target_mean="x", target_scale=[0, 1]))):
            with self.subTest(pattern), self.assertRaisesRegex(minrnn.InvalidArgument, pattern):
                model.set_scaler(**wrong)

    def test_carried_states_are_forgotten_on_request(self):
        models = [minrnn.Model(vocab="bytes", layers=1, dim=16, seed=3) for _ in range(3)]
        first, second = list(batches(2)), list(batches(2, seed=5))
        for model, forgets in zip(models, (True, False, True)):
            model.fit(first, carry=True)
            if forgets:
                model.forget_carry()
        losses = [model.fit(second[:1], carry=True).loss for model in models]
        self.assertEqual(losses[0], losses[2])
        self.assertNotEqual(losses[0], losses[1])
        with tempfile.TemporaryDirectory() as folder:  # carried states do not go into files
            path = os.path.join(folder, "training")
            models[0].save_training(path)
            models[1].load_training(path)
        models[0].forget_carry()
        self.assertEqual(models[0].fit(second[1:], carry=True).loss, models[1].fit(second[1:], carry=True).loss)


if __name__ == "__main__":
    unittest.main()
