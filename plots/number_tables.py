# SPDX-License-Identifier: Apache-2.0
"""What the READMEs say of the tables in results/: each block and each number by its name. The modules in numbers_of/ compute them; nothing
here measures or draws."""

from numbers_of import bench, beside, gpus, mode3, transports


def named(which):
    """The blocks, or the numbers, of all modules. A name that two modules use is an error."""
    found = {}
    for module in (bench, gpus, transports, beside, mode3):
        twice = found.keys() & getattr(module, which, {}).keys()
        if twice:
            raise ValueError(f"{module.__file__}: another module of numbers_of has {', '.join(sorted(twice))}, too")
        found |= getattr(module, which, {})
    return found


BLOCKS, NUMBERS = named("BLOCKS"), named("NUMBERS")
