"""An instance's configuration on disk, for the tests of this folder."""

from pathlib import Path

from fairlead.config.loading import Settings, load
from fairlead.config.paths import Paths
from fairlead.config.problems import ConfigError
from fairlead.config.schema import Config


class Instance:
    """Files that can be written, and what loading makes of them."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.paths = Paths(str(home))

    def write(self, text: str | bytes, name: str = "config.yaml") -> Path:
        path = self.home / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    def settings(self, **environ: str) -> Settings:
        return load(self.paths, environ)

    def config(self, **environ: str) -> Config:
        return self.settings(**environ).config

    def problems(self, **environ: str) -> list[str]:
        """What is wrong, in the order it is told; paths are shown from the instance's home on."""
        try:
            self.settings(**environ)
        except ConfigError as error:
            return [str(problem).replace(f"{self.home}/", "") for problem in error.problems]
        return []

    def problems_of(self, text: str | bytes) -> list[str]:
        """What is wrong with this config.yaml."""
        self.write(text)
        return self.problems()
