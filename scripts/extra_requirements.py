"""Print the requirements of one optional extra of pyproject.toml: `extra_requirements.py lint`.

Tools that need no rebuilt extension are installed from this list, so `make lint` never compiles twice.
"""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def main() -> None:
    with open("pyproject.toml", "rb") as source:
        project = tomllib.load(source)["project"]
    print("\n".join(project["optional-dependencies"][sys.argv[1]]))


main()
