// The OpenAPI document, laid out for reading.
const made = (name, text) => Object.assign(document.createElement(name), text === undefined ? {} : { textContent: text });
const api = await (await fetch("/openapi.json")).json();
const follow = (schema) => (schema?.$ref ? api.components.schemas[schema.$ref.split("/").at(-1)] : schema);

for (const [path, item] of Object.entries(api.paths)) {
  const section = made("section");
  for (const method of ["get", "post", "put", "delete"].filter((one) => item[one])) {
    const operation = item[method], title = made("h2"), details = made("details");
    title.append(made("code", `${method.toUpperCase()} ${path}`));
    section.append(title, made("p", operation.summary));
    details.append(made("summary", "Request and answers"));
    const body = operation.requestBody?.content;
    if (body) {
      details.append(made("p", `Body: ${Object.keys(body).join(", ")}`));
      details.append(made("pre", JSON.stringify(follow(body["application/json"].schema), null, 1)));
    }
    for (const [status, answer] of Object.entries(operation.responses)) details.append(made("p", `${status}  ${answer.description}`));
    section.append(details);
  }
  document.getElementById("routes").append(section);
}
