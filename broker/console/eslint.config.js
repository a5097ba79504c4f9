import css from "@eslint/css";
import js from "@eslint/js";
import globals from "globals";

export default [
  {
    files: ["**/*.js"],
    ...js.configs.recommended,
    languageOptions: { ecmaVersion: 2022, sourceType: "module", globals: globals.browser },
  },
  { files: ["**/*.js"], rules: { eqeqeq: "error", "no-var": "error", "prefer-const": "error" } },
  {
    files: ["**/*.css"],
    plugins: { css },
    language: "css/css",
    rules: {
      ...css.configs.recommended.rules,
      // [hidden] and reduced motion have to win over every other rule.
      "css/no-important": "off",
      "css/use-baseline": [
        "error",
        // Where a browser lacks one of these, the console looks plainer and works the same.
        { available: "newly", allowProperties: ["accent-color", "resize", "scrollbar-width"] },
      ],
    },
  },
];
