"""An Apache Kafka that serves client telemetry (KIP-714): it does so only with a plugin that takes the metrics."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.apache_kafka import ApacheKafka, jars_folder, made_once
from tests.support.java_programs import compile_java

__all__ = ["TelemetryKafka"]

_PLUGIN = Path(__file__).with_name("TelemetryReceiver.java")


class TelemetryKafka(ApacheKafka):
    """One node with the plugin."""

    def __init__(self) -> None:
        super().__init__({"metric.reporters": _PLUGIN.stem})

    def _jars(self) -> Path:
        """Return a folder with Kafka's jars and the plugin's."""
        jars = jars_folder()
        digest = hashlib.sha256(_PLUGIN.read_bytes()).hexdigest()[:12]

        with TemporaryDirectory() as compiled:
            compile_java([_PLUGIN], Path(compiled))

            def make(folder: Path) -> None:
                folder.mkdir()
                for jar in jars.glob("*.jar"):
                    (folder / jar.name).symlink_to(jar)
                with zipfile.ZipFile(folder / "plugin.jar", "w") as plugin:
                    for file in Path(compiled).glob("*.class"):
                        plugin.write(file, file.name)

            return made_once(jars.parent / f"telemetry-{jars.name}-{digest}", make)
