"""minrnn.torch on a GPU: numbers, streams, graphs, devices. Without one the choices around the calls alone."""
import unittest
from unittest import mock

from torch_support import arguments, masks, torch

import minrnn
from minrnn.torch import MinGRU, MinLSTM, cell, cuda, scan

needs_gpu = unittest.skipUnless(torch.cuda.is_available(), "no GPU: minrnn.torch was not run on CUDA")


class Choices(unittest.TestCase):
    """What is passed to the library; no GPU is needed."""

    def setUp(self):
        before = torch.get_float32_matmul_precision()
        self.addCleanup(torch.set_float32_matmul_precision, before)

    def place(self, handle, **more):
        with mock.patch.object(cuda, "context") as context, mock.patch.object(cuda, "current_stream") as stream:
            stream.return_value = handle
            _, got = cuda.place(torch.device("cuda", 3), **more)
        stream.assert_called_once_with(3)
        return got, context.call_args

    def test_the_callers_stream(self):
        self.assertEqual(self.place(4711)[0], 4711)
        self.assertEqual(self.place(0)[0], 1)  # the default stream, not one of the library's

    def test_products_are_as_exact_as_pytorchs(self):
        for precision, exact in ("highest", True), ("high", False):
            torch.set_float32_matmul_precision(precision)
            self.assertEqual(self.place(1)[1], mock.call("cuda:3", exact=exact))
        torch.set_float32_matmul_precision("highest")
        self.assertEqual(self.place(1, recomputed=True)[1], mock.call("cuda:3", exact=False))

    def test_traced_without_a_gpu(self):
        from torch._subclasses.fake_tensor import FakeTensorMode
        if torch.cuda.is_available():
            self.skipTest("there is a GPU here")
        with FakeTensorMode():
            x, weight = torch.empty(3, 7, 4, device="cuda:0"), torch.empty(10, 4, device="cuda:0")
            h, last, saved = torch.ops.minrnn.cell(x, weight, *[None] * 5, 0, 0, True, False, True)
        self.assertEqual((h.shape, last.shape, saved.device), ((3, 7, 5), (3, 5), x.device))
        self.assertEqual(saved.numel() % 256, 0)
        self.assertGreaterEqual(saved.numel(), 3 * 7 * 10 * 4)


def on_gpu(tensors, dtype=torch.float32):
    return [None if x is None else x.detach().to("cuda", x.dtype if x.dtype in (torch.bool, torch.int64) else dtype)
            .requires_grad_(x.is_floating_point()) for x in tensors]


@needs_gpu
class Gpu(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)

    def near(self, ours, theirs, tolerance):
        for i, (a, b) in enumerate(zip(ours, theirs)):
            worst = ((a.double().cpu() - b.double()).abs() / (1 + b.double().abs().max())).max().item()
            self.assertTrue(worst <= tolerance, f"{i}: {worst}")

    def gradients(self, args, extra, kind):
        h, last = cell(*args, *extra, kind=kind)
        loss = h.double().square().mean() + last.double().mean()
        return [h, last, *torch.autograd.grad(loss, args)]

    def compare(self, sizes, kind, dtype, tolerance, **more):
        args = arguments(kind, dtype=torch.float64, **sizes)
        extra = masks(sizes["B"], sizes["T"]) if more.get("masked") else (None, None)
        got = self.gradients(on_gpu(args[:1], dtype) + on_gpu(args[1:]), on_gpu(extra), kind)
        self.near(got, self.gradients(args, extra, kind), tolerance)

    def test_cells_are_those_of_the_cpu(self):
        for kind in "mingru", "minlstm":
            for sizes in ({"B": 3, "T": 7, "D": 4, "H": 5}, {"B": 3, "T": 700, "D": 64, "H": 384},
                          {"B": 3, "T": 1, "D": 16, "H": 32}):
                for masked in False, True:
                    with self.subTest(kind=kind, masked=masked, **sizes):
                        self.compare(sizes, kind, torch.float32, 2e-5, masked=masked)
                        self.compare(sizes, kind, torch.bfloat16, 0.03, masked=masked)

    def test_tf32_where_pytorch_takes_it(self):
        before = torch.get_float32_matmul_precision()
        self.addCleanup(torch.set_float32_matmul_precision, before)
        torch.set_float32_matmul_precision("high")
        for kind in "mingru", "minlstm":
            self.compare({"B": 3, "T": 700, "D": 64, "H": 384}, kind, torch.float32, 1e-2)
        args = on_gpu(arguments(B=3, T=64, D=64, H=384))
        h = cell(*args)[0]
        torch.set_float32_matmul_precision("highest")  # between forward and backward
        self.assertTrue(all(g.isfinite().all() for g in torch.autograd.grad(h.sum(), args)))

    def test_scan(self):
        a, b, h0 = torch.rand(2, 999, 33), torch.randn(2, 999, 33), torch.randn(2, 33)
        results = []
        for device in "cuda", "cpu":
            leaves = [x.to(device).requires_grad_() for x in (a, b, h0)]
            h, last = scan(*leaves)
            results.append([h, last, *torch.autograd.grad(h.square().sum() + last.sum(), leaves)])
        self.near(*results, 2e-5)
        self.near([minrnn.scan(a.cuda(), b.cuda())], [minrnn.scan(a, b)], 2e-5)

    def test_odd_layouts(self):
        x, weight, bias, h0, h_init = on_gpu(arguments(T=7, D=8, H=8))
        plain = cell(x, weight, bias, h0, h_init)[0]
        spread = torch.empty(3, 7, 8, 2, device="cuda")[..., 0].copy_(x)
        shifted = torch.empty(3 * 7 * 8 + 1, device="cuda")[1:].view(3, 7, 8).copy_(x)
        for other in spread, shifted:
            self.assertTrue(torch.equal(cell(other, weight, bias, h0, h_init)[0], plain))
            low = other.bfloat16()
            if other is shifted:
                low = torch.empty(169, device="cuda", dtype=torch.bfloat16)[1:].view(3, 7, 8).copy_(x)
            self.near([cell(low, weight, bias, h0, h_init)[0]], [plain.cpu()], 0.03)

    def test_a_stream_of_the_caller(self):
        args = on_gpu(arguments("minlstm", B=8, T=2000, D=32, H=64))
        want = self.gradients(args, (None, None), "minlstm")
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            late = [torch.zeros_like(x) for x in args]
            torch.cuda._sleep(20_000_000)  # whoever does not wait for this stream reads zeros
            for x, y in zip(late, args):
                x.copy_(y.detach()).requires_grad_()
            got = self.gradients(late, (None, None), "minlstm")
        torch.cuda.current_stream().wait_stream(stream)
        self.assertTrue(all(torch.equal(a, b) for a, b in zip(got, want)))

    def test_a_cuda_graph(self):
        module = MinGRU(16, 32, 2, batch_first=True, device="cuda")
        x, grads = torch.randn(4, 50, 16, device="cuda"), []
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                module.zero_grad()
                module(x)[0].square().sum().backward()
        torch.cuda.current_stream().wait_stream(stream)
        module.zero_grad()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)[0]
            y.square().sum().backward()
        for _ in range(2):
            x.copy_(torch.randn_like(x))
            for p in module.parameters():
                p.grad.zero_()
            graph.replay()
            grads = [p.grad.clone() for p in module.parameters()]
            again = torch.autograd.grad(module(x)[0].square().sum(), list(module.parameters()))
            self.assertTrue(torch.equal(y, module(x)[0]))
            self.assertTrue(all(torch.equal(a, b) for a, b in zip(grads, again)))

    def test_all_memory_is_pytorchs(self):
        args = on_gpu(arguments(B=16, T=1024, D=64, H=384))
        for _ in range(2):
            self.gradients(args, (None, None), "mingru")
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        before, held = torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved()
        self.gradients(args, (None, None), "mingru")
        torch.cuda.synchronize()
        self.assertEqual(before - torch.cuda.mem_get_info()[0], torch.cuda.memory_reserved() - held)

    def test_the_same_bits(self):
        args = on_gpu(arguments("minlstm", B=5, T=3000, D=16, H=40))
        first = self.gradients(args, (None, None), "minlstm")
        for _ in range(3):
            self.assertTrue(all(torch.equal(a, b)
                                for a, b in zip(first, self.gradients(args, (None, None), "minlstm"))))

    def test_compiled(self):
        for module in MinGRU(16, 32, 2, batch_first=True, device="cuda"), MinLSTM(16, 32, device="cuda"):
            x = torch.randn(4, 50, 16, device="cuda")
            for mode in None, "reduce-overhead":
                compiled = torch.compile(module, fullgraph=True, mode=mode)
                for _ in range(3):
                    self.near([compiled(x)[0].detach().cpu().clone()], [module(x)[0].detach().cpu()], 1e-5)

    def test_autocast(self):
        module, x = MinGRU(16, 32, batch_first=True, device="cuda"), torch.randn(4, 50, 16, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            y, _ = module(x)
        self.assertEqual(y.dtype, torch.bfloat16)
        y.float().sum().backward()
        self.near([y], [module(x)[0].cpu()], 0.03)

    def test_devices(self):
        x, weight = torch.randn(2, 3, 4, device="cuda"), torch.randn(10, 4)
        with self.assertRaisesRegex(ValueError, "^weight: is on cpu, and the input on cuda:0"):
            cell(x, weight)
        with self.assertRaisesRegex(TypeError, "float64 is computed on the CPU alone"):
            cell(x.double(), weight.cuda().double())
        if torch.cuda.device_count() < 2:
            return
        args = [t.detach().to("cuda:1").requires_grad_() for t in arguments(dtype=torch.float32)]
        got = self.gradients(args, (None, None), "mingru")
        self.assertEqual({g.device.index for g in got}, {1})
        self.assertEqual(torch.cuda.current_device(), 0)

    def test_models(self):
        settings = dict(vocab="bytes", layers=2, dim=32, lr=0.01, seed=2)
        ids = minrnn.Model(**settings).encode("the cat sat on the mat. " * 20)
        batch = dict(ids=ids[None, :128].repeat(4, 0), target=ids[None, 1:129].repeat(4, 0))
        gpu, cpu = minrnn.Model(device="cuda", **settings), minrnn.Model(**settings)
        for model in gpu, cpu:
            model.result = model.fit([batch] * 20)
        self.assertLess(abs(gpu.result.loss - cpu.result.loss), 0.2)
        self.assertTrue("".join(gpu.generate("the", tokens=20)))
        self.assertTrue(gpu.tensor("head.weight").flags.owndata)  # a copy: the memory is the GPU's


if __name__ == "__main__":
    unittest.main()
