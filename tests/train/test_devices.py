import paddle
import pytest

from paddleport.errors import UsageError
from train.config import RunOptions
from train.devices import amp_sentence, check_capability, choose_device, choose_engine, make_engine
from train.engines.amp import Amp
from train.engines.compiled import CompiledEngine
from train.engines.eager import EagerEngine

needs_no_gpu = pytest.mark.skipif(paddle.is_compiled_with_cuda(), reason="says what a CPU build says")
CPU = "Device: cpu (Paddle sees no GPU). Engine: "
IN_FLOAT32 = "is asked for; on the CPU Paddle computes in float32 all the same."


@needs_no_gpu
@pytest.mark.parametrize(
    ("options", "engine", "reason"),
    [
        ({}, "compiled", CPU + "compiled (the default on the CPU)."),
        ({"device": "cpu"}, "compiled", "Device: cpu (as asked). Engine: compiled (the default on the CPU)."),
        ({"engine": "compiled"}, "compiled", CPU + "compiled (as asked)."),
        ({"engine": "eager"}, "eager", CPU + "eager (as asked)."),
        ({"recompute": True}, "eager", CPU + "eager (--recompute needs it)."),
        ({"amp": "O1"}, "eager", f"{CPU}eager (--amp O1 needs it). AMP: O1 in float16 {IN_FLOAT32}"),
        (
            {"amp": "O2", "amp_dtype": "bfloat16", "recompute": True},
            "eager",
            f"{CPU}eager (--amp O2 and --recompute need it). AMP: O2 in bfloat16 {IN_FLOAT32}",
        ),
        (
            {"amp": "O1", "engine": "eager", "device": "cpu"},
            "eager",
            f"Device: cpu (as asked). Engine: eager (as asked). AMP: O1 in float16 {IN_FLOAT32}",
        ),
    ],
)
def test_what_was_taken_is_said_with_its_reason(options, engine, reason):
    device = choose_device(RunOptions(**options))
    assert (device.name, device.engine, device.reason) == ("cpu", engine, reason)
    assert paddle.get_device() == "cpu"
    assert device.recompute == options.get("recompute", False)
    assert (device.amp.level if device.amp else "off") == options.get("amp", "off")


@needs_no_gpu
def test_a_gpu_that_is_asked_for_and_not_there_is_refused():
    with pytest.raises(
        UsageError, match=r"--device gpu needs a GPU, and this Paddle is built for the CPU only\. Install"
    ):
        choose_device(RunOptions(device="gpu"))


@pytest.mark.parametrize(
    ("options", "who"),
    [
        ({"amp": "O1"}, "--amp O1 needs"),
        ({"recompute": True}, "--recompute needs"),
        ({"amp": "O2", "recompute": True}, "--amp O2 and --recompute need"),
    ],
)
def test_the_compiled_engine_refuses_what_only_the_eager_one_does(options, who):
    with pytest.raises(UsageError, match=f"{who} the eager engine: got --engine compiled"):
        choose_engine(RunOptions(engine="compiled", **options), "cpu")


def test_on_a_gpu_the_eager_engine_is_the_default_and_amp_needs_no_excuse():
    assert choose_engine(RunOptions(), "gpu") == ("eager", "the default on the GPU")
    assert amp_sentence(Amp("O1", "float16"), "gpu") == " AMP: O1 in float16."
    assert amp_sentence(None, "gpu") == amp_sentence(None, "cpu") == ""


@pytest.mark.parametrize(
    ("dtype", "major", "advice"),
    [
        ("bfloat16", 7, "Use --amp off, or --amp-dtype float16"),
        ("bfloat16", 6, "Use --amp off."),
        ("float16", 6, "off."),
    ],
)
def test_a_gpu_too_old_for_a_type_is_refused_instead_of_going_on_in_float32(dtype, major, advice):
    with pytest.raises(UsageError, match=f"--amp-dtype {dtype} is more than this GPU can do.*got {major}.*{advice}"):
        check_capability(Amp("O1", dtype), major)


def test_a_gpu_that_can_do_it_is_taken():
    check_capability(Amp("O1", "float16"), 7)
    check_capability(Amp("O2", "bfloat16"), 8)
    check_capability(None, 3)


@pytest.mark.parametrize(("options", "kind"), [({}, CompiledEngine), ({"amp": "O2", "recompute": True}, EagerEngine)])
def test_the_engine_is_the_one_that_was_said(options, kind):
    from problems import ACTIONS, problem

    assert isinstance(make_engine(choose_device(RunOptions(device="cpu", **options)), problem(ACTIONS["box"])), kind)
