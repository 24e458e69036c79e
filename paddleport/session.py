"""ONNX Runtime sessions, set the way every Paddleport consumer needs them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from paddleport.errors import ArtifactError, MissingExtraError, UsageError
from paddleport.spaces import Array

Provider: TypeAlias = str | tuple[str, dict[str, Any]]
DEFAULT_PROVIDERS = ("CPUExecutionProvider",)
MOST_THREADS = 1024
_COMPARE = "Export it again, or compare this ONNX Runtime with the one that its manifest names"


class Session:
    """One loaded ONNX policy.

    Args:
        model: the ONNX file's bytes.
        providers: execution providers in order of preference, each a name, or a name and its options.
        threads: threads within one operator; 1 is the fastest for small policies, 0 takes all cores.

    Raises:
        ArtifactError: ONNX Runtime cannot load the model.
        UsageError: `providers` is no list or empty, the first is not the one in use, or `threads` is no such number.
    """

    def __init__(self, model: bytes, providers: Sequence[Provider] = DEFAULT_PROVIDERS, threads: int = 1) -> None:
        runtime = _onnxruntime()
        if not providers or isinstance(providers, str):
            example = "a list, such as ['CPUExecutionProvider']"
            raise UsageError("The execution providers are not a list of names", expected=example, got=repr(providers))
        if not isinstance(threads, int) or not 0 <= threads <= MOST_THREADS:
            allowed = f"a whole number up to {MOST_THREADS}; 0 for as many as there are cores"
            raise UsageError("Threads within an operator", expected=allowed, got=repr(threads))
        self._session = _load(runtime, model, list(providers), threads)
        self.provider: str = self._session.get_providers()[0]
        wanted = providers[0] if isinstance(providers[0], str) else providers[0][0]
        if self.provider != wanted:
            raise UsageError(
                "ONNX Runtime fell back to another execution provider",
                expected=wanted,
                got=self.provider,
                todo=f"This machine has {', '.join(runtime.get_available_providers())}",
            )
        self.output_names: list[str] = [output.name for output in self._session.get_outputs()]
        # Below its wrapper, which costs a third of a small policy's run, and falls back to the CPU in silence.
        inner = getattr(self._session, "_sess", None)
        self._run: Callable[..., Any] = self._session.run if inner is None else inner.run
        self.input_names: list[str] = [given.name for given in self._session.get_inputs()]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run the graph on named inputs; the named outputs (default: all) come in order. Thread-safe.

        Raises:
            ArtifactError: the graph has no such inputs or outputs, or fails on them.
        """
        try:
            results: list[Array] = self._run(self.output_names if outputs is None else outputs, feeds, None)
        except Exception as error:  # ONNX Runtime's exceptions share no public base class
            raise ArtifactError("ONNX Runtime cannot run this policy", got=_first_line(error), todo=_COMPARE) from error
        return results


def available_providers() -> list[str]:
    """The execution providers that this ONNX Runtime was built with."""
    names: list[str] = _onnxruntime().get_available_providers()
    return names


def _onnxruntime() -> Any:  # noqa: ANN401 - a module without type information
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError("onnxruntime", "serve") from error
    return onnxruntime


def _load(runtime: Any, model: bytes, providers: list[Provider], threads: int) -> Any:  # noqa: ANN401
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    # Without VNNI the uint8 × int8 kernels of x86 add two products in 16 bits and saturate.
    options.add_session_config_entry("session.x64quantprecision", "1")
    try:
        return runtime.InferenceSession(model, options, providers=providers)
    except Exception as error:  # ONNX Runtime's exceptions share no public base class
        raise ArtifactError("ONNX Runtime cannot load this policy", got=_first_line(error), todo=_COMPARE) from error


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
