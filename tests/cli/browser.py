"""A headless Chromium, driven over its DevTools protocol with the standard library alone.

    with Browser() as browser:
        browser.open("file:///x.html")
        browser.evaluate("document.title")
"""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


def find_browser():
    """KEDGE_BROWSER, or the first Chromium on the PATH; None where there is none."""
    named = os.environ.get("KEDGE_BROWSER")
    return named or next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


class WebSocket:
    """RFC 6455, as far as a client on the same machine needs it: text messages, no extensions."""

    def __init__(self, url, timeout):
        host, path = url.removeprefix("ws://").split("/", 1)
        name, port = host.rsplit(":", 1)
        self.socket = socket.create_connection((name, int(port)), timeout=timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET /{path} HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            answer += self.read(1)
        if b" 101 " not in answer.split(b"\r\n")[0]:
            raise ConnectionError(answer.decode(errors="replace"))

    def read(self, n):
        data = bytearray()
        while len(data) < n:
            chunk = self.socket.recv(n - len(data))
            if not chunk:
                raise ConnectionError("the browser hung up")
            data += chunk
        return bytes(data)

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        head = struct.pack("!BB", 0x81, 0x80 | min(size, 126)) if size < 126 else (
            struct.pack("!BBH", 0x81, 0xFE, size) if size < 1 << 16 else struct.pack("!BBQ", 0x81, 0xFF, size))
        self.socket.sendall(head + mask + bytes(b ^ mask[i % 4] for i, b in enumerate(data)))

    def receive(self):
        message = b""
        while True:
            first, size = self.read(2)
            size &= 0x7F
            if size >= 126:
                size = int.from_bytes(self.read(2 if size == 126 else 8), "big")
            payload = self.read(size)
            if first & 0x0F in (0, 1):
                message += payload
                if first & 0x80:
                    return message.decode()
            elif first & 0x0F == 8:
                raise ConnectionError("the browser closed the connection")


class Browser:
    def __init__(self, timeout=60):
        self.timeout, self.number, self.events = timeout, 0, []
        self.folder = tempfile.mkdtemp(prefix="kedge-browser-")
        # No sandbox: tests run as root in containers, and the page is ours.
        self.process = subprocess.Popen(
            [find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--hide-scrollbars", "--remote-debugging-port=0", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self.socket = WebSocket(self.page_url(), timeout)
            for domain in ("Page", "Runtime", "Log", "Network"):
                self.call(domain + ".enable")
        except BaseException:
            self.close()
            raise

    def page_url(self):
        deadline, port_file = time.monotonic() + self.timeout, os.path.join(self.folder, "DevToolsActivePort")
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                raise RuntimeError(f"{find_browser()} ended with {self.process.returncode}")
            try:
                with open(port_file) as f:
                    port = f.readline().strip()
                opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
                with opener.open(f"http://127.0.0.1:{port}/json/list", timeout=self.timeout) as answer:
                    pages = [p for p in json.load(answer) if p["type"] == "page"]
                if pages:
                    return pages[0]["webSocketDebuggerUrl"]
            except OSError:
                pass
            time.sleep(0.05)
        raise TimeoutError("the browser opened no DevTools port")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, method, **parameters):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.receive())
            if message.get("id") == self.number:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return message["result"]
            self.events.append(message)

    def open(self, url, width=1100, height=900):
        """Loads a page; seconds until its load event, by the browser's own clock."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.events.clear()
        self.call("Page.navigate", url=url)
        while not any(e.get("method") == "Page.loadEventFired" for e in self.events):
            self.events.append(json.loads(self.socket.receive()))
        # two frames: what was loaded is also drawn
        return self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => "
                             "done(performance.now() / 1000))))")

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(json.dumps(result["exceptionDetails"])[:800])
        return result["result"].get("value")

    def problems(self):
        """What the console complains about, violations of the content security policy included."""
        found = []
        for event in self.events:
            method, p = event.get("method"), event.get("params", {})
            if method == "Log.entryAdded" and p["entry"]["level"] in ("error", "warning"):
                found.append(p["entry"]["text"])
            elif method == "Runtime.exceptionThrown":
                found.append(json.dumps(p["exceptionDetails"])[:400])
            elif method == "Runtime.consoleAPICalled" and p["type"] in ("error", "warning", "assert"):
                found.append(json.dumps(p["args"])[:400])
        return found

    def requests(self):
        return [e["params"]["request"]["url"] for e in self.events if e.get("method") == "Network.requestWillBeSent"]

    def emulate(self, scheme="light", media="", vision="none"):
        """scheme: light, dark; media: print; vision: achromatopsia (grey), deuteranopia, ..."""
        self.call("Emulation.setEmulatedMedia", media=media,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setEmulatedVisionDeficiency", type=vision)

    def screenshot(self, path, selector="html"):
        """A picture of the whole element, also of what lies below the window."""
        box = self.evaluate(f"(() => {{ const e = document.querySelector({json.dumps(selector)});"
                            "const b = e.getBoundingClientRect();"
                            "return {x: b.x + scrollX, y: b.y + scrollY, width: b.width, height: b.height}; })()")
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=box | {"scale": 1})
        with open(path, "wb") as f:
            f.write(base64.b64decode(picture["data"]))
