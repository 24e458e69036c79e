"""What Prometheus reads: the sums over all workers, in its text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from paddleport import __version__
from serve.messages import Gathered
from serve.runtime.drift import EDGES
from serve.runtime.repository import Repository
from serve.runtime.statistics import BATCHES, SECONDS, STAGES, Histogram
from serve.runtime.table import states

_POLICY = ("policy", "version")


def exposition(gathered: Gathered, repository: Repository) -> tuple[bytes, str]:
    """The metrics' text and its content type."""
    registry = CollectorRegistry()
    registry.register(_Collector(gathered, repository))
    return generate_latest(registry), CONTENT_TYPE_LATEST


class _Collector:
    def __init__(self, gathered: Gathered, repository: Repository) -> None:
        self._gathered = gathered
        self._policies = {tuple(key.rsplit("/", 1)): counts for key, counts in gathered.counts.policies.items()}
        self._repository = repository

    def collect(self) -> Iterator[Metric]:
        yield from self._server()
        yield self._requests()
        yield self._histogram("request_seconds", "Time of each stage of a request", SECONDS, ("stage",))
        yield self._histogram("batch_size", "Observations in a request", BATCHES, ())
        yield from self._watched()
        yield self._actions()

    def _server(self) -> Iterator[Metric]:
        gathered, now = self._gathered, self._gathered.counts.now
        build = GaugeMetricFamily("paddleport_build_info", "The server's version", labels=["version"])
        build.add_metric([__version__], 1)
        yield build
        yield GaugeMetricFamily("paddleport_workers", "Processes that answer", value=gathered.workers)
        yield CounterMetricFamily("paddleport_workers_replaced", "Workers that died", value=gathered.replaced)
        yield GaugeMetricFamily("paddleport_in_flight", "Requests that wait or run", value=now.get("in_flight", 0))
        yield GaugeMetricFamily("paddleport_queue_depth", "Requests that wait for a batch", value=now.get("queued", 0))
        yield GaugeMetricFamily("paddleport_connections", "Open connections", value=now.get("connections", 0))
        reloads = CounterMetricFamily("paddleport_reloads", "Versions that were opened", labels=["result"])
        for result, count in gathered.reloads.items():
            reloads.add_metric([result], count)
        yield reloads
        state = GaugeMetricFamily("paddleport_version_ready", "1 where the version serves", labels=[*_POLICY])
        for one in states(self._repository.table):
            state.add_metric([one.name, str(one.version)], int(one.ready))
        yield state
        provider = GaugeMetricFamily(
            "paddleport_provider_in_use", "What runs the version", labels=[*_POLICY, "provider", "precision"]
        )
        acting = GaugeMetricFamily("paddleport_acting_version", "Which version acts", labels=["policy"])
        for policy in self._repository.open_policies():
            manifest = policy.manifest
            provider.add_metric([manifest.name, str(manifest.version), policy.provider, policy.precision], 1)
        for policy in self._repository.acting():
            acting.add_metric([policy.manifest.name], policy.manifest.version)
        yield provider
        yield acting

    def _requests(self) -> Metric:
        found = CounterMetricFamily(
            "paddleport_requests", "Requests to act or infer", labels=[*_POLICY, "protocol", "status"]
        )
        for (name, version), counts in self._policies.items():
            for key, number in counts.requests.items():
                found.add_metric([name, version, *key.split(" ")], number)
        for key, number in self._gathered.counts.other.items():
            found.add_metric(["", "", *key.split(" ")], number)
        return found

    def _histogram(self, name: str, text: str, edges: tuple[float, ...], more: tuple[str, ...]) -> Metric:
        family = HistogramMetricFamily(f"paddleport_{name}", text, labels=[*_POLICY, *more])
        for labels, counts in self._policies.items():
            if more:
                for stage in STAGES:
                    _add(family, [*labels, stage], getattr(counts, stage), edges)
            else:
                _add(family, [*labels], counts.batch, edges)
        return family

    def _watched(self) -> Iterator[Metric]:
        distance = HistogramMetricFamily(
            "paddleport_ood_distance", "Each observation's largest distance from the training, in standard deviations",
            labels=[*_POLICY],
        )  # fmt: skip
        far = CounterMetricFamily(
            "paddleport_ood_far", "Observations far from those of the training", labels=[*_POLICY]
        )
        shift = GaugeMetricFamily(
            "paddleport_ood_feature_shift", "Mean distance of a feature, signed", labels=[*_POLICY, "feature"]
        )
        breaches = CounterMetricFamily(
            "paddleport_guard_breaches", "Actions that were stopped", labels=[*_POLICY, "what"]
        )
        shadow = CounterMetricFamily("paddleport_shadow", "Observations compared", labels=[*_POLICY, "outcome"])
        for labels, counts in self._policies.items():
            drift = counts.drift
            if drift.distance:
                _add(distance, [*labels], Histogram(drift.distance, drift.distance_sum), EDGES)
            far.add_metric([*labels], drift.far)
            for feature, total in zip(drift.features, drift.score_sum, strict=True):
                shift.add_metric([*labels, feature], total / max(1, drift.observations))
            for what, number in counts.breaches.items():
                breaches.add_metric([*labels, what], number)
            for outcome, number in counts.shadow.items():
                shadow.add_metric([*labels, outcome], number)
        yield from (distance, far, shift, breaches, shadow)

    def _actions(self) -> Metric:
        found = CounterMetricFamily(
            "paddleport_actions", "Actions by choice, or by tenth of the bounds", labels=[*_POLICY, "part", "bin"]
        )
        for labels, counts in self._policies.items():
            for part, bins in enumerate(counts.drift.actions):
                for index, number in enumerate(bins):
                    found.add_metric([*labels, str(part), str(index)], number)
        return found


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram, edges: tuple[float, ...]) -> None:
    total = 0
    buckets: list[tuple[str, float]] = []
    for edge, count in zip([*map(str, map(float, edges)), "+Inf"], histogram.counts, strict=True):
        total += count
        buckets.append((edge, total))
    family.add_metric(labels, buckets, histogram.sum)
