"""Exported programs: they can be trained on, and the operators alone have gradients."""
import io
import unittest

from torch_support import arguments, masks, torch, version

from minrnn.torch import MinGRU, MinLSTM, cell, ops, scan

OPTIONS = 0, 0, True, False  # mingru, positive, normalize, not signed


class Scan(torch.nn.Module):
    def forward(self, a, b):
        return scan(a, b)


class Exported(unittest.TestCase):
    def trains(self, program, module, *inputs):
        """The program gives the module's gradients of weights and inputs."""
        found = []
        for run in module, program.module():
            leaves = [x.clone().requires_grad_() for x in inputs]
            run(*leaves)[0].square().sum().backward()
            found.append([*(x.grad for x in leaves), *(p.grad for p in run.parameters())])
        for right, got in zip(*found, strict=True):
            self.assertIsNotNone(got)
            self.assertTrue(torch.allclose(got, right, rtol=1e-5, atol=1e-6))

    def test_they_can_be_trained(self):
        for strict in (False, True) if version() >= (2, 6) else (True,):  # it cannot trace otherwise
            for module in MinGRU(4, 5, 2, batch_first=True), MinLSTM(4, 5, bidirectional=True):
                x = torch.randn(3, 7, 4)
                self.trains(torch.export.export(module, (x,), strict=strict), module, x)
            a, b = torch.rand(2, 6, 3), torch.randn(2, 6, 3)
            self.trains(torch.export.export(Scan(), (a.requires_grad_(), b), strict=strict), Scan(), a.detach(), b)

    def test_after_a_file(self):
        module, x, place = MinGRU(4, 5), torch.randn(7, 3, 4), io.BytesIO()
        torch.export.save(torch.export.export(module, (x,)), place)
        place.seek(0)
        self.trains(torch.export.load(place), module, x)


class Operators(unittest.TestCase):
    """torch.ops.minrnn, called by themselves."""

    def test_gradients_of_the_cell(self):
        args, (reset, length) = arguments(), masks()
        reset, length = reset.to(torch.uint8), length.to(torch.int32)
        for kept in False, True:
            h, last, saved = ops.cell(*args, reset, length, *OPTIONS, True)
            right, before = cell(*args, reset, length), saved.clone()
            got, right = ([*torch.autograd.grad(one.sum() + two.square().sum(), args, retain_graph=kept)]
                          for one, two in ((h, last), right))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, right)))
            self.assertTrue(torch.equal(saved, before))

    def test_gradients_of_the_scan(self):
        a, b, h0 = (torch.rand(*shape, requires_grad=True) for shape in ((2, 6, 3), (2, 6, 3), (2, 3)))
        got, right = (torch.autograd.grad(run(a, b, h0, None, None)[0].square().sum(), (a, b, h0))
                      for run in (ops.scan, scan))
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, right)))

    def test_gradients_can_be_traced(self):
        reset, length = masks()
        extra = reset.to(torch.uint8), length.to(torch.int32)
        a, b, h0 = (torch.rand(*shape, requires_grad=True) for shape in ((3, 7, 4), (3, 7, 4), (3, 4)))
        for operator, args in ((ops.cell, (*arguments(dtype=torch.float32), *extra, *OPTIONS, True)),
                               (ops.scan, (a, b, h0, *extra)), (ops.scan, (a, b, None, None, None))):
            results = torch.library.opcheck(operator, args)
            self.assertEqual(set(results.values()), {"SUCCESS"}, results)

    def test_what_does_not_fit_is_refused(self):
        x, weight, bias, h0, h_init = arguments(dtype=torch.float32, grad=False)
        reset, length = masks()
        good = [x, weight, bias, h0, h_init, reset.to(torch.uint8), length.to(torch.int32)]
        h, last, saved = ops.cell(*good, *OPTIONS, True)
        results = {"h": h, "saved": saved, "dh": h, "dlast": last}
        for i, name in enumerate("x weight bias h0 h_init reset length".split()):
            for wrong in good[i][:1], good[i].double():
                args = [wrong if i == k else v for k, v in enumerate(good)]
                with self.subTest(name=name), self.assertRaisesRegex(ValueError, "is needed$"):
                    ops.cell(*args, *OPTIONS, True)
                with self.subTest(name=name), self.assertRaisesRegex(ValueError, "is needed$"):
                    ops.cell_backward(*args, *results.values(), *OPTIONS, True)
        for name, right in results.items():
            for wrong in right[:1], right.double():
                with self.subTest(name=name), self.assertRaises(ValueError):
                    ops.cell_backward(*good, *{**results, name: wrong}.values(), *OPTIONS, True)

    def test_what_does_not_fit_a_scan_is_refused(self):
        a, h0, (reset, length) = torch.rand(3, 7, 4), torch.rand(3, 4), masks()
        good = {"a": a, "b": a, "h0": h0, "reset": reset.to(torch.uint8), "length": length.to(torch.int32)}
        h, last = ops.scan(*good.values())
        back = {**good, "h": h, "dh": h, "dlast": last}
        del back["b"]
        for run, args in (ops.scan, good), (ops.scan_backward, back):
            for name, right in args.items():
                for wrong in right[:1], right.double():
                    with self.subTest(name=name), self.assertRaisesRegex(ValueError, "is needed$"):
                        run(*{**args, name: wrong}.values())

    def test_nothing_kept(self):
        x, weight = arguments()[:2]
        h = ops.cell(x, weight, *(None,) * 5, *OPTIONS, False)[0]
        with self.assertRaisesRegex(RuntimeError, "keep=True"):
            h.sum().backward()


if __name__ == "__main__":
    unittest.main()
