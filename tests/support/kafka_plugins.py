"""An Apache Kafka with a small plugin of the tests beside its jars."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.support.apache_kafka import ApacheKafka, Setting, create_once, jars_folder
from tests.support.java_programs import compile_java

__all__ = ["KafkaWithPlugin"]


class KafkaWithPlugin(ApacheKafka):
    """One node with the class of a Java file."""

    def __init__(self, plugin: Path, properties: Mapping[str, Setting]) -> None:
        """`properties` name the class, which has the name of the file."""
        self._plugin = plugin
        super().__init__(properties)

    def _jars(self) -> Path:
        """Return a folder with Kafka's jars and the plugin's."""
        jars = jars_folder()
        digest = hashlib.sha256(self._plugin.read_bytes()).hexdigest()[:12]

        with TemporaryDirectory() as compiled:
            compile_java([self._plugin], Path(compiled))

            def make(folder: Path) -> None:
                folder.mkdir()
                for jar in jars.glob("*.jar"):
                    (folder / jar.name).symlink_to(jar)
                with zipfile.ZipFile(folder / "plugin.jar", "w") as plugin:
                    for file in Path(compiled).glob("*.class"):
                        plugin.write(file, file.name)

            return create_once(jars.parent / f"{self._plugin.stem}-{jars.name}-{digest}", make)
