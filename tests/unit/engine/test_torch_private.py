"""What each private name of torch means: where torch renames or changes one, a test here says so."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.library import Library

from amp_core.torch_private import autograd, dispatcher, grad_scaler, modules, profiler, tensors

aten = torch.ops.aten


def test_private_names_of_grad_scaler_are_still_there() -> None:
    """The contract of `grad_scaler`: where torch renames these, this test says so."""
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    assert grad_scaler.scale(scaler) is None
    assert grad_scaler.growth_tracker(scaler) is None
    scaler.scale(weight.sum()).backward()
    assert not grad_scaler.is_unscaled(scaler, optimizer)
    scaler.unscale_(optimizer)
    assert grad_scaler.is_unscaled(scaler, optimizer)
    assert [t.item() for t in grad_scaler.found_infs(scaler)] == [0.0]
    scaler.step(optimizer)
    scaler.update()
    scale, tracker = grad_scaler.scale(scaler), grad_scaler.growth_tracker(scaler)
    assert scale is not None
    assert tracker is not None
    assert (scale.item(), scale.dtype, tracker.item(), tracker.dtype) == (4.0, torch.float32, 1, torch.int32)
    assert grad_scaler.found_infs(scaler) == []


def test_versions_count_changes_in_place() -> None:
    tensor = torch.zeros(2)
    before = autograd.version(tensor)
    tensor.add_(1)
    assert autograd.version(tensor) == before + 1


def test_autocast_depth_counts_open_regions() -> None:
    assert autograd.autocast_depth() == 0
    with torch.autocast("cpu"), torch.autocast("cpu", enabled=False):
        assert autograd.autocast_depth() == 2
    assert autograd.autocast_depth() == 0


def test_backward_is_seen_with_its_node_and_number() -> None:
    weight = torch.ones(2, requires_grad=True)
    number = autograd.next_number()
    middle = weight * 2
    assert autograd.number_of(middle.grad_fn) == number
    assert autograd.next_number() == number + 1
    seen: list[Any] = []

    class Look(dispatcher.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append((dispatcher.schema(func).name, autograd.is_in_backward(), autograd.current_node()))
            return func(*args, **(kwargs or {}))

    loss = middle.sum()
    assert not autograd.is_in_backward()
    assert autograd.current_node() is None
    with Look():
        loss.backward()
    assert [inside for name, inside, _ in seen if name == "aten::mul"] == [True]
    (node,) = [node for name, _, node in seen if name == "aten::mul"]
    assert autograd.number_of(node) == number


def test_an_overload_tells_its_schema_operation_and_name() -> None:
    add = aten.add.Tensor
    assert dispatcher.schema(add).name == "aten::add"
    assert dispatcher.schema(add).overload_name == "Tensor"
    assert [argument.name for argument in dispatcher.schema(add).arguments] == ["self", "other", "alpha"]
    assert not dispatcher.schema(add).is_mutable
    assert dispatcher.schema(aten.add_.Tensor).is_mutable
    assert dispatcher.operation_of(add) is aten.add
    assert dispatcher.overload_name(add) == "Tensor"
    assert dispatcher.overload_name(aten.relu.default) == "default"


def test_the_dispatcher_lists_operations_and_their_autocast_rules() -> None:
    names = dispatcher.operation_names()
    assert {"aten::mm", "aten::add.Tensor"} <= set(names)
    assert dispatcher.has_rule("aten::mm", "AutocastCPU")
    assert not dispatcher.has_rule("aten::relu", "AutocastCPU")


def test_a_region_without_autocast_passes_over_its_rules() -> None:
    left, right = torch.ones(2, 2), torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert (left @ right).dtype is torch.bfloat16
        with dispatcher.without(dispatcher.key_set("AutocastCPU")):
            assert (left @ right).dtype is torch.float32
    after = dispatcher.keys_after("AutocastCPU")
    assert after.has(torch._C.DispatchKey.CPU)
    assert not after.has(torch._C.DispatchKey.AutocastCPU)


def test_a_withdrawn_rule_is_gone() -> None:
    library = Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        library.impl("relu", lambda x: x * 0 + 7, "AutocastCPU", allow_override=True)  # type: ignore[no-untyped-call]
    with torch.autocast("cpu"):
        assert torch.relu(torch.ones(1)).item() == 7
        dispatcher.withdraw(library)
        assert torch.relu(torch.ones(1)).item() == 1


def test_lists_of_tensors_in_one_call() -> None:
    held = [torch.tensor([3.0, 4.0]), torch.tensor([2.0])]
    assert [norm.item() for norm in tensors.foreach_norm(held)] == [5.0, 2.0]
    (wide,) = tensors.foreach_norm([torch.full((4,), 60000.0, dtype=torch.float16)], 2, dtype=torch.float32)
    assert (wide.dtype, wide.item()) == (torch.float32, 2 * float(torch.tensor(60000.0).half()))
    tensors.foreach_mul_(held, 2.0)
    assert held[0].tolist() == [6.0, 8.0]
    tensors.foreach_lerp_(held, [torch.zeros(2), torch.zeros(1)], 0.25)
    assert [t.tolist() for t in held] == [[4.5, 6.0], [3.0]]
    with pytest.raises(TypeError):  # what `GradientNorms` relies on to be told of a missing gradient
        tensors.foreach_norm([torch.ones(1), None])  # type: ignore[list-item]


def test_trees_go_through_containers() -> None:
    tree = {"a": (torch.ones(1), 2), "b": [torch.ones(2)]}
    assert [leaf for leaf in tensors.tree_leaves(tree) if isinstance(leaf, int)] == [2]
    doubled = tensors.tree_map(lambda leaf: leaf * 2, tree)
    assert doubled["a"][1] == 4
    assert doubled["b"][0].tolist() == [2.0, 2.0]


def test_views_are_known() -> None:
    tensor = torch.ones(2, 2)
    assert tensors.is_view(tensor.t())
    assert not tensors.is_view(tensor)


def test_hooks_are_dropped_and_dropout_is_known() -> None:
    module, calls = nn.Linear(1, 1), []
    module.register_forward_hook(lambda *_: calls.append("after"))
    module.register_forward_pre_hook(lambda *_: calls.append("before"))
    module(torch.ones(1))
    modules.drop_forward_hooks(module)
    module(torch.ones(1))
    assert calls == ["before", "after"]
    assert all(issubclass(kind, modules.DROPOUT) for kind in (nn.Dropout, nn.Dropout2d, nn.AlphaDropout))
    assert not issubclass(nn.Linear, modules.DROPOUT)


def test_events_of_a_cpu_are_not_cudas() -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        torch.ones(2) + 1
    events = list(profile.events())
    assert events
    assert not any(profiler.ran_on_cuda(event) for event in events)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch is built without torch.distributed")
def test_the_bucket_of_a_communication_hook_has_its_buffer() -> None:
    from amp_core.torch_private.buckets import GradBucket

    assert {"buffer", "set_buffer"} <= set(dir(GradBucket))
