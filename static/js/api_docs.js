// Shows the API's own description in Swagger UI.
"use strict";

SwaggerUIBundle({
  url: document.getElementById("api").dataset.schema,
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
