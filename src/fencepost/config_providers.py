"""Settings that refer to a secret instead of containing it, as in Kafka's clients (KIP-297, KIP-421).

    config.providers=env,file
    sasl.password=${env:KAFKA_PASSWORD}
    ssl.key.password=${file:/etc/kafka/secrets.properties:key.password}

The process that creates a client resolves the references. So neither Spark's plans nor the data that Spark sends to its
workers contain the secret.
"""

from __future__ import annotations

import functools
import logging
import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from fencepost.errors import ConfigurationError
from fencepost.properties import read_properties
from fencepost.small_files import bare_reason, read_small

__all__ = ["PROVIDERS", "resolved"]

PROVIDERS: Final = "config.providers"

SLOW_S: Final = 1.0  # from here on the log names a provider: a file server may hang

_log = logging.getLogger("fencepost")

_REFERENCE: Final = re.compile(r"\$\{([^}:]*):(?:([^}]*):)?([^}:]*)\}")


def resolved(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return `settings` (Kafka's names) with references resolved, and without `config.providers`.

    If no provider is named, `${...}` is ordinary text.

    Raises:
        ConfigurationError: A provider or a reference is invalid. The message quotes no secret.
    """
    own = {name: value for name, value in settings.items() if name == PROVIDERS or name.startswith(f"{PROVIDERS}.")}
    others = {name: value for name, value in settings.items() if name not in own}
    readers = _readers(own)
    if not readers:
        return others

    def text_of(setting: str, reference: re.Match[str]) -> str:
        provider, path, key = reference[1], reference[2] or "", reference[3]
        begun_s = time.monotonic()
        try:
            return readers[provider](path, key)
        except KeyError:
            known = ", ".join(readers)
            raise ConfigurationError(f"{setting}: {PROVIDERS}={known} does not name {provider!r}") from None
        except ValueError as error:
            raise ConfigurationError(f"{setting}: {error}") from None
        finally:
            took_s = time.monotonic() - begun_s
            if took_s >= SLOW_S:
                _log.warning("%s: the config provider %r took %.1f s for %r", setting, provider, took_s, path or key)

    return {
        name: _REFERENCE.sub(functools.partial(text_of, name), value) if isinstance(value, str) else value
        for name, value in others.items()
    }


def _readers(own: Mapping[str, Any]) -> dict[str, Callable[[str, str], str]]:
    """Return the readers by provider name. Raises ConfigurationError for an unsupported provider or parameter."""
    names = [name.strip() for name in str(own.get(PROVIDERS, "")).split(",") if name.strip()]
    classes = {f"{PROVIDERS}.{name}.class": name for name in names}
    for given in own:
        if given != PROVIDERS and given not in classes:
            raise ConfigurationError(f"{given} is not possible here")
    readers = {}
    for given, name in classes.items():
        wanted = own.get(given, name)
        if wanted not in _KINDS:
            raise ConfigurationError(f"{given}={wanted}: one of {', '.join(_KINDS)}")
        readers[name] = _KINDS[wanted]
    return readers


def _of_environment(path: str, key: str) -> str:
    if path:
        raise ValueError(f"${{...:{path}:{key}}}: a variable of the environment has no path")
    if key not in os.environ:
        raise ValueError(f"{key} is not in this process's environment")
    return os.environ[key]


def _of_file(path: str, key: str) -> str:
    if not path:
        raise ValueError(f"${{...:{key}}} names no file; write ${{file:PATH:KEY}}")
    found = read_properties(Path(path), "utf-8")  # Kafka's FileConfigProvider also decodes the file as UTF-8
    if key not in found:
        raise ValueError(f"{path} has no line {key}=...")
    return found[key]


def _of_directory(path: str, key: str) -> str:
    """Read a secret from a file of its own, as Kubernetes mounts them. As in Kafka, the whole file is the value."""
    if not path or Path(key).name != key:
        raise ValueError(f"{path}:{key}: a folder, and the name of a file in it")
    try:
        return read_small(Path(path) / key)
    except (OSError, ValueError) as error:
        raise ValueError(f"{Path(path) / key}: {bare_reason(error)}") from error


_KAFKAS: Final = "org.apache.kafka.common.config.provider"
_KINDS: Final[Mapping[str, Callable[[str, str], str]]] = {
    "env": _of_environment,
    "file": _of_file,
    "directory": _of_directory,
    f"{_KAFKAS}.EnvVarConfigProvider": _of_environment,
    f"{_KAFKAS}.FileConfigProvider": _of_file,
    f"{_KAFKAS}.DirectoryConfigProvider": _of_directory,
}
