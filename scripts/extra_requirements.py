"""Print the requirements of one optional extra of pyproject.toml. The argument of the script is the name of the extra,
such as `lint`.

`make` uses this list to install tools without Outcrop.
"""

import sys

if sys.version_info >= (3, 11):
    import tomllib
else:
    from pip._vendor import tomli as tomllib


def main() -> None:
    with open("pyproject.toml", "rb") as source:
        project = tomllib.load(source)["project"]
    for requirement in project["optional-dependencies"][sys.argv[1]]:
        print(requirement.replace(" ", ""))  # the shell divides the output at spaces


main()
