"""The devices that frameworks see. Frameworks are queried last, and only if the kernel
uses them: JAX takes most of a GPU's memory once it is queried."""

import importlib


def devices(names):
    return {"devices": {name: ask(name) for name in names if name in ASK}}


def ask(name):
    try:
        return ASK[name](importlib.import_module(name)) or "no GPU"
    except Exception as error:
        return "%s: %s" % (type(error).__name__, str(error).split("\n")[0])


def torch(module):
    return ", ".join(module.cuda.get_device_name(i) for i in range(module.cuda.device_count()))


def cupy(module):
    count = module.cuda.runtime.getDeviceCount()
    return ", ".join(module.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count))


def tensorflow(module):
    return ", ".join(device.name for device in module.config.list_physical_devices("GPU"))


def jax(module):
    return ", ".join(device.device_kind for device in module.devices() if device.platform != "cpu")


def pyclesperanto(module):
    return ", ".join(module.list_available_devices())


ASK = {"torch": torch, "cupy": cupy, "tensorflow": tensorflow, "jax": jax, "pyclesperanto": pyclesperanto}
