// The one script of a file that needs no server, such as a report. It unpacks the modules and the data that the file
// carries, and starts the page.
//
// Modules become blobs, in an order in which each comes after those that it imports: where a module names another one,
// the packing has put its name between two characters U+0001, and the blob's address takes that place. No import map is
// needed, no server, and the browser may forbid everything else (see the content policy in the head).
(async () => {
  const fail = (error) => {
    console.error(error);
    const line = document.createElement("p");
    line.className = "notice warn";
    line.textContent = document.getElementById("pack").dataset.fails.replace("ERROR", () => error.message);
    document.getElementById("notices").replaceChildren(line);
  };
  try {
    const unpacking = new DecompressionStream("gzip"); // which older browsers lack
    const { modules, scripts, start, data } = await unpacked(unpacking).catch((error) => {
      throw new Error("the file is damaged: get it again", { cause: error });
    });
    const address = (source) => URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
    const urls = new Map();
    for (const [name, source] of modules) {
      urls.set(name, address(source.replace(/\u0001([^\u0001]+)\u0001/g, (_, other) => urls.get(other))));
    }
    // What `import(...)` has become: the name of the module that asks, and what it asks for.
    globalThis.proteinImport = (from, wanted) => {
      const name = decodeURIComponent(new URL(wanted, `https://file.invalid/${from}`).pathname.slice(1));
      return urls.has(name) ? import(urls.get(name)) : Promise.reject(new Error(`the file has no module ${name}`));
    };
    for (const source of scripts) {
      await new Promise((resolve, reject) => {
        const script = document.createElement("script");
        script.src = address(source);
        script.onload = resolve;
        script.onerror = () => reject(new Error("a library could not be loaded"));
        document.head.append(script);
      });
    }
    await (await import(urls.get(start))).start(data);
  } catch (error) {
    fail(error);
  }

  async function unpacked(unpacking) {
    const packed = Uint8Array.from(atob(document.getElementById("pack").textContent.trim()), (sign) => sign.charCodeAt(0));
    return JSON.parse(await new Response(new Blob([packed]).stream().pipeThrough(unpacking)).text());
  }
})();
